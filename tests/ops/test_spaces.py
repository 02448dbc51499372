"""Workspaces are lent to one graph at a time and come back when it is gone."""

import gc
import os
import subprocess
import sys
import tracemalloc
from typing import Any

import numpy as np
import pytest

import tinygrad_attn as ta
from tinygrad_attn.ops import sequence, spaces, unrolled_space
from tinygrad_attn.ops.spaces import Pool
from tinygrad_attn.ops.steps import STEPS


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


@pytest.mark.parametrize("cell", STEPS)
@pytest.mark.parametrize(("batch", "size"), [(1, 4), (8, 32)])
def test_what_is_prepared_counts_as_memory(cell: str, batch: int, size: int) -> None:
    """For small arrays the calls and their views take more than the numbers."""
    step, dtype = STEPS[cell], np.dtype(np.float32)

    def encoder() -> Any:
        made = sequence._Space(step, 40, batch, size, size, dtype)
        for run in made.runs:
            run.gradients.start()
        return made

    def decoder() -> Any:
        made = unrolled_space.Space(
            step, unrolled_space.Axes(batch, 40, 40, size, size, 2 * size, size), dtype
        )
        made.gradients.start()
        made.back()
        return made

    for make in (encoder, decoder):
        make()
        tracemalloc.start()
        try:
            made = make()
            taken, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert 0.7 < made.nbytes / taken < 1.8


def test_many_shapes_are_held_to_the_limit() -> None:
    pool = Pool(1000)
    for size in range(1, 300):
        pool.borrow(Space, size)
    free = [space for spaces_of_a_shape in pool._free.values() for space in spaces_of_a_shape]
    assert sum(space.nbytes for space in free) == pool._held <= 1000
    assert {space.nbytes for space in free} == {297, 298, 299}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")
def test_a_forked_process_is_not_held_up_by_a_thread_of_its_parent() -> None:
    script = (
        "import os, threading, numpy as np, tinygrad_attn as ta\n"
        "from tinygrad_attn.ops.spaces import pool\n"
        "held, go = threading.Event(), threading.Event()\n"
        "def hold():\n"
        "    with pool._lock:\n"
        "        held.set()\n"
        "        go.wait()\n"
        "threading.Thread(target=hold).start()\n"
        "held.wait()\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    ta.nn.BidirectionalEncoder(2, 3)(np.ones((1, 2, 2), np.float32))\n"
        "    os._exit(0)\n"
        "print(os.waitpid(child, 0)[1])\n"
        "go.set()\n"
    )
    # Python 3.12 and later warn of a fork beside threads, which is what this is about.
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "0", done.stderr


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


def test_the_backward_pass_ends_the_loan() -> None:
    spaces.pool.clear()
    model, words = model_and_words()
    gc.disable()
    try:
        loss = model.loss(Batch(words[0]))
        assert len(spaces.pool) == 0
        loss.backward()
        assert len(spaces.pool) == 2  # the encoder's and the decoder's
        model.loss(Batch(words[1]))
        assert len(spaces.pool) == 2
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
