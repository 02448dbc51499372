from __future__ import annotations

import pytest

from tinygrad_attn.train import TrainingConfig
from tinygrad_attn.train.schedule import learning_rate, progress_at


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("constant", [2.0, 2.0, 2.0, 2.0, 2.0]),
        ("linear", [2.0, 1.6, 1.2, 0.8, 0.4]),
        ("cosine", [2.0, 1.7656854249, 1.2, 0.6343145751, 0.4]),
    ],
)
def test_how_the_rate_falls(schedule: str, expected: list[float]) -> None:
    config = TrainingConfig(steps=4, lr=2.0, lr_end=0.2, schedule=schedule)
    assert [learning_rate(config, step / 4) for step in range(5)] == pytest.approx(expected)


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
def test_warm_up_rises_from_zero_and_joins_without_a_jump(schedule: str) -> None:
    config = TrainingConfig(steps=10, lr=2.0, warmup=0.2, schedule=schedule, lr_end=0.1)
    assert [learning_rate(config, p) for p in (0.0, 0.05, 0.1, 0.2)] == pytest.approx([0.0, 0.5, 1.0, 2.0])
    assert learning_rate(config, 1.0) == pytest.approx(2.0 if schedule == "constant" else 0.2)


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        ({"steps": 10}, 0.3),
        ({"minutes": 2.0}, 0.5),
        ({"steps": 10, "minutes": 2.0}, 0.5),
        ({"steps": 2}, 1.0),
    ],
)
def test_progress_is_that_of_the_budget_nearer_to_its_end(budget: dict[str, float], expected: float) -> None:
    assert progress_at(TrainingConfig(**budget), 3, 60.0) == expected
