"""Workspaces are lent to one graph at a time and come back when it is gone."""

import gc

import numpy as np
import pytest

import tinygrad_attn as ta
from tinygrad_attn.ops import spaces
from tinygrad_attn.ops.spaces import Pool


class Space:
    def __init__(self, size: int) -> None:
        self.nbytes = size


def test_a_workspace_comes_back() -> None:
    pool = Pool(1000)
    first = pool.borrow(Space, 10)
    space = first.space
    assert pool.borrow(Space, 10).space is not space  # in use
    del first
    assert pool.borrow(Space, 10).space is space
    assert pool.borrow(Space, 20).space is not space  # another shape


def test_the_longest_unused_go_first() -> None:
    pool = Pool(100)
    loans = [pool.borrow(Space, size) for size in (40, 50, 60)]
    kept = [loan.space for loan in loans]
    while loans:
        loans.pop(0)
    assert pool.borrow(Space, 60).space is kept[2]
    assert pool.borrow(Space, 40).space is not kept[0]


def test_those_that_are_free_can_be_let_go() -> None:
    pool = Pool(100)
    lent, free = pool.borrow(Space, 10), pool.borrow(Space, 20)
    spaces_before = lent.space, free.space
    del free
    pool.clear()
    assert pool.borrow(Space, 20).space is not spaces_before[1]
    del lent
    assert pool.borrow(Space, 10).space is spaces_before[0]


def test_one_larger_than_the_limit_is_kept() -> None:
    pool = Pool(100)
    space = pool.borrow(Space, 500).space
    assert pool.borrow(Space, 500).space is space


def model_and_words() -> tuple[ta.nn.Seq2Seq, list[np.ndarray]]:
    rng = np.random.default_rng(0)
    words = [rng.integers(4, 14, (3, 5)) for _ in range(3)]
    return ta.nn.Seq2Seq(14, 14, 5, 6, dtype=np.float64, rng=rng), words


class Batch:
    def __init__(self, words: np.ndarray) -> None:
        self.source, self.lengths = words, np.full(3, 5)
        self.target_in, self.target_out = words, words


def gradients(model: ta.nn.Seq2Seq) -> list[np.ndarray]:
    found = [parameter.grad for parameter in model.parameters()]
    model.zero_grad()
    return found


def test_two_graphs_at_once_do_not_share() -> None:
    model, words = model_and_words()
    alone = []
    for batch in words:
        model.loss(Batch(batch)).backward()
        alone.append(gradients(model))
    losses = [model.loss(Batch(batch)) for batch in words]
    for loss, expected in zip(losses, alone, strict=True):
        loss.backward()
        for ours, theirs in zip(gradients(model), expected, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_what_is_left_of_earlier_use_does_not_show() -> None:
    model, words = model_and_words()
    model.loss(Batch(words[0])).backward()
    expected = gradients(model)
    embedding = model.source_embedding.weight.data
    saved = embedding.copy()
    embedding[...] = np.nan
    with np.errstate(all="ignore"):
        model.loss(Batch(words[1])).backward()
    gradients(model)
    embedding[...] = saved
    model.loss(Batch(words[0])).backward()
    for ours, theirs in zip(gradients(model), expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_the_backward_pass_ends_the_loan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spaces.pool, "_free", [])
    model, words = model_and_words()
    gc.disable()
    try:
        loss = model.loss(Batch(words[0]))
        assert not spaces.pool._free
        loss.backward()
        assert len(spaces.pool._free) == 2  # the encoder's and the decoder's
        model.loss(Batch(words[1]))
        assert len(spaces.pool._free) == 2
    finally:
        gc.enable()


def test_a_graph_can_be_walked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    model, words = model_and_words()
    loss = model.loss(Batch(words[0]))
    loss.backward(retain_graph=True)
    first = gradients(model)
    model.loss(Batch(words[1])).backward()
    gradients(model)
    loss.backward()
    for ours, theirs in zip(gradients(model), first, strict=True):
        np.testing.assert_array_equal(ours, theirs)
