"""The context managers restore what they found: after exceptions, nested, as decorators, thread by thread."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import numpy as np
import pytest

import tinygrad_attn as ta
from tinygrad_attn.engine.modes import Mode, changed_mode, thread


def leaf(data: Any) -> ta.Tensor:
    return ta.Tensor(data, requires_grad=True)


def test_nothing_is_recorded_under_no_grad() -> None:
    x = leaf(2.0)
    with ta.no_grad():
        y = x * x
    assert not y.requires_grad and y.is_leaf and (x * x).requires_grad


def test_no_grad_ends_with_an_exception() -> None:
    with pytest.raises(KeyError), ta.no_grad():
        raise KeyError
    x = leaf(2.0)
    (x * x).backward()
    assert x.grad == 4


def test_no_grad_nested() -> None:
    x = leaf(2.0)
    with ta.no_grad():
        with ta.no_grad():
            pass
        assert not (x * x).requires_grad
    assert (x * x).requires_grad


def test_no_grad_as_a_decorator_of_a_recursive_function() -> None:
    @ta.no_grad()
    def power(x: ta.Tensor, n: int) -> ta.Tensor:
        return x if n == 1 else x * power(x, n - 1)

    x = leaf(2.0)
    assert power(x, 5).item() == 32 and not power(x, 5).requires_grad
    assert (x * x).requires_grad


@pytest.mark.parametrize("mode", [ta.no_grad, ta.explicit])
def test_a_mode_may_be_entered_again_and_inside_itself(mode: Any) -> None:
    before, one = thread.mode, mode()
    for _ in range(2):
        with one:
            inside = thread.mode
            with one:
                assert thread.mode == inside != before
            assert thread.mode == inside
        assert thread.mode == before


@pytest.mark.parametrize("mode", [ta.no_grad, ta.explicit])
def test_a_mode_decorates_with_and_without_parentheses(mode: Any) -> None:
    def found(depth: int = 0) -> Mode:
        """Its words."""
        return thread.mode if not depth else bare(depth - 1)

    bare, called = mode(found), mode()(found)
    with mode():
        right = thread.mode
    assert bare() == called() == bare(3) == right != thread.mode
    assert bare.__name__ == "found" and bare.__doc__ == "Its words."


def test_what_runs_after_its_call_cannot_be_decorated() -> None:
    """The body of a generator would run outside the mode, and nobody would notice."""

    def steps() -> Any:
        yield 1

    async def later() -> None: ...

    async def later_steps() -> Any:
        yield 1

    for function in (steps, later, later_steps):
        for decorate in (ta.no_grad, ta.no_grad(), ta.explicit):
            with pytest.raises(TypeError, match=f"{function.__name__} runs after its call, outside the mode"):
                decorate(function)
    with pytest.raises(TypeError, match=r"steps.* runs after its call, outside the mode"):
        ta.no_grad()(partial(steps))


def test_a_decorated_function_in_several_threads() -> None:
    started, ended = threading.Barrier(2, timeout=5), threading.Barrier(2, timeout=5)
    modes = []

    @ta.no_grad
    def work(first: bool) -> None:
        started.wait()
        if first:
            ended.wait()  # the other has left by then

    def run(first: bool) -> None:
        with ta.scope(f"thread {first}"):
            work(first)
            if not first:
                ended.wait()
            modes.append(thread.mode)

    threads = [threading.Thread(target=run, args=(first,)) for first in (True, False)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert {mode.scope.path() for mode in modes if mode.scope} == {"thread True", "thread False"}
    assert all(mode.recording for mode in modes)


def test_the_name_of_a_scope_is_text() -> None:
    number: Any = 3
    with pytest.raises(TypeError, match="scope: the name is a int, expected a str"):
        ta.scope(number)


def test_every_thread_has_its_own_mode() -> None:
    x = leaf(2.0)
    inside, done = threading.Event(), threading.Event()
    seen: list[bool] = []

    def other() -> None:
        inside.wait(5)
        seen.append((x * x).requires_grad)
        with ta.no_grad():
            done.set()

    worker = threading.Thread(target=other)
    worker.start()
    with ta.no_grad(), ta.scope("here"):
        inside.set()
        done.wait(5)
        assert not (x * x).requires_grad
    worker.join()
    assert seen == [True] and thread.mode == Mode()


def test_threads_work_on_graphs_of_their_own_over_shared_leaves() -> None:
    w = leaf(np.full((4, 4), 0.1))
    results: list[np.ndarray] = [np.zeros(0)] * 4

    def work(i: int) -> None:
        for _ in range(20):
            x = ta.Tensor(np.full((2, 4), float(i)))
            for _ in range(10):
                x = ta.tanh(x @ w)
            results[i] = ta.grad(x.sum(), w)[0].data

    workers = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    expected = list(results)
    for i in range(4):
        work(i)
        np.testing.assert_array_equal(results[i], expected[i])


def operations(output: ta.Tensor) -> list[tuple[str, str]]:
    """The names and scopes of the operations that `output` was computed by, newest first."""
    found, stack, seen = [], [output], set()
    while stack:
        node = stack.pop()
        if node in seen or node._primitive is None:
            continue
        seen.add(node)
        found.append((node._number, node._primitive.name, node._scope.path() if node._scope else ""))
        stack += [x for x in node._inputs if isinstance(x, ta.Tensor)]
    return [entry[1:] for entry in sorted(found, reverse=True)]


def test_scopes_are_recorded_with_each_operation() -> None:
    x = leaf(2.0)
    with ta.scope("decoder"):
        y = x * 2
        with ta.scope("step 2"):
            y = y + 1
        y = ta.tanh(y)
    y = -y
    assert operations(y) == [("neg", ""), ("tanh", "decoder"), ("add", "decoder/step 2"), ("mul", "decoder")]


def test_scope_ends_with_an_exception_and_can_be_entered_again() -> None:
    again = ta.scope("again")
    with pytest.raises(KeyError), again:
        raise KeyError
    assert thread.mode.scope is None
    with again, again:
        assert thread.mode.scope is not None and thread.mode.scope.path() == "again/again"
    assert thread.mode.scope is None


def test_explicit_runs_definitions_in_a_scope_of_their_name() -> None:
    x = leaf([1.0, 2.0])
    assert [name for name, _ in operations(ta.softmax(x))] == ["softmax"]
    with ta.explicit():
        names = operations(ta.softmax(x))
    assert {"exp", "sum", "div"} <= {name for name, _ in names} and {scope for _, scope in names} == {
        "softmax"
    }
    assert [name for name, _ in operations(ta.softmax(x))] == ["softmax"]


def test_modes_combine_and_restore() -> None:
    with ta.explicit(), ta.scope("a"), ta.no_grad():
        assert thread.mode[:2] == (False, True)
        with changed_mode(recording=True):
            assert thread.mode.recording and thread.mode.explicit and thread.mode.scope is not None
        assert not thread.mode.recording
    assert thread.mode == Mode()


def test_watcher_sees_every_operation_and_every_gradient() -> None:
    seen: list[Any] = []

    class Watcher:
        def forward(self, output: Any, primitive: Any, arrays: Any, static: Any) -> None:
            seen.append(("forward", primitive.name, output.item()))
            assert static == {} and len(arrays) == 2

        def backward(self, output: Any, slot: int, upstream: Any, gradient: Any) -> None:
            seen.append(("backward", output._primitive.name, slot, float(gradient)))

    x = leaf(2.0)
    with changed_mode(watcher=Watcher()):
        y = x * 3.0 + x
        y.backward()
    assert seen == [
        ("forward", "mul", 6),
        ("forward", "add", 8),
        ("backward", "add", 0, 1),
        ("backward", "add", 1, 1),
        ("backward", "mul", 0, 3),
    ]
