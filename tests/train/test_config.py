from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tests.train.small import small_task
from tinygrad_attn.errors import UserError
from tinygrad_attn.train import ConfigError, ModelConfig, TrainingConfig, default_settings
from tinygrad_attn.train.config import describe_settings, settings_from_json, settings_to_json

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hidden": 0}, "hidden is 0, expected an integer of at least 1"),
        ({"hidden": 2.5}, "hidden is 2.5"),
        ({"hidden": True}, "hidden is True"),
        ({"hidden": 10**9}, "hidden is 1000000000"),
        ({"embedding": -1}, "embedding is -1"),
        ({"attention_size": 0}, "attention_size is 0"),
        ({"attention": "multiplicative"}, "attention is 'multiplicative', expected one of additive, dot"),
        ({"query": "next"}, "query is 'next', expected one of previous, current"),
        ({"cell": "GRU"}, "cell is 'GRU', expected one of gru, lstm, rnn"),
        ({"dropout": 1.0}, "dropout is 1.0, expected a number of at least 0 and below 1"),
        ({"dropout": NAN}, "dropout is nan"),
        ({"init": "xavier"}, "init is 'xavier'"),
        ({"attention": "dot", "hidden": 7}, "hidden is 7, expected an even number"),
        ({"input_feeding": True}, "input_feeding needs query current"),
        ({"output_layer": "maxout", "query": "current"}, "maxout needs query previous"),
        ({"cell": "lstm", "reset_after": False}, "reset_after false needs cell gru"),
    ],
)
def test_impossible_models(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        ModelConfig(**settings)
    assert isinstance(caught.value, UserError) and isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps": 0}, "steps is 0"),
        ({"steps": 10**400}, "steps is 1000"),
        ({"minutes": -1.0}, "minutes is -1.0, expected a number above 0"),
        ({"steps": 1, "clip": float("inf")}, "clip is inf, expected a finite number above 0"),
        ({"minutes": NAN}, "minutes is nan"),
        ({"minutes": INF}, "minutes is inf"),
        ({}, "neither steps nor minutes"),
        ({"steps": 1, "lr": 0.0}, "lr is 0.0"),
        ({"steps": 1, "lr": NAN}, "lr is nan"),
        ({"steps": 1, "lr": "fast"}, "lr is 'fast'"),
        ({"steps": 1, "batch": 0}, "batch is 0"),
        ({"steps": 1, "warmup": 1.0}, "warmup is 1.0"),
        ({"steps": 1, "clip": 0}, "clip is 0"),
        ({"steps": 1, "seed": -1}, "seed is -1"),
        ({"steps": 1, "schedule": "sine"}, "schedule is 'sine'"),
        ({"steps": 1, "stop_when_solved": 1}, "stop_when_solved is 1, expected true or false"),
    ],
)
def test_impossible_trainings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TrainingConfig(**settings)


@pytest.mark.parametrize("settings", [ModelConfig(dropout=0.1), TrainingConfig(minutes=0.5)])
def test_settings_survive_json(settings: Any) -> None:
    content = json.loads(json.dumps(settings_to_json(settings)))
    assert settings_from_json(type(settings), content, "here") == settings
    assert set(describe_settings(type(settings))) == set(content)


def test_numbers_of_numpy_are_numbers() -> None:
    training = TrainingConfig(steps=np.int64(3), lr=np.float32(0.5), stop_when_solved=np.bool_(False))
    assert training == TrainingConfig(steps=3, lr=0.5, stop_when_solved=False)
    assert json.loads(json.dumps(settings_to_json(training)))["steps"] == 3
    with pytest.raises(ConfigError, match="hidden is 0, expected an integer of at least 1"):
        ModelConfig(hidden=np.int32(0))


@pytest.mark.parametrize("content", [None, [], {}, {**settings_to_json(ModelConfig()), "more": 1}])
def test_foreign_settings_name_where_they_stand(content: Any) -> None:
    with pytest.raises(ConfigError, match=r"config\.json: model: .*expected the keys"):
        settings_from_json(ModelConfig, content, "config.json: model")


def test_a_damaged_setting_names_where_it_stands() -> None:
    with pytest.raises(ConfigError, match=r"config\.json: model: hidden is 0"):
        settings_from_json(
            ModelConfig, {**settings_to_json(ModelConfig()), "hidden": 0}, "config.json: model"
        )


@pytest.mark.parametrize("attention", ["dot", "scaled"])
def test_dot_products_get_widths_that_fit(attention: str) -> None:
    model = ModelConfig(attention=attention, hidden=6, embedding=3).build(8, 8, np.random.default_rng(0))
    assert model.encoder.forward_cell.hidden_size == 3


@pytest.mark.parametrize("query", ["previous", "current"])
@pytest.mark.parametrize("cell", ["gru", "lstm", "rnn"])
@pytest.mark.parametrize("attention", ["additive", "dot", "scaled", "general", "concat", "none"])
def test_every_combination_is_built_and_learns_a_step(attention: str, cell: str, query: str) -> None:
    rng = np.random.default_rng(0)
    model = ModelConfig(attention=attention, cell=cell, query=query, hidden=4, embedding=3).build(8, 8, rng)
    loss = model.loss(small_task().train_batch(0, 3))
    loss.backward()
    assert np.isfinite(loss.item())
    assert all(np.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


def test_the_papers_initial_values() -> None:
    model = ModelConfig(init="paper", hidden=8, embedding=3).build(8, 8, np.random.default_rng(0))
    assert not model.decoder.attention.v_a.data.any()
    recurrent = model.decoder.cell.weight_hh.data[:8].astype(float)
    np.testing.assert_allclose(recurrent @ recurrent.T, np.eye(8), atol=1e-6)


def test_a_toy_task_has_a_budget_of_steps_so_that_its_figures_repeat() -> None:
    _, training = default_settings(small_task())
    assert training.steps is not None and training.minutes is None
