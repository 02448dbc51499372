"""A process that helps, and is in nobody's way: late, failing, interrupted, killed, orphaned."""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tinygrad_attn.engine import helper as module
from tinygrad_attn.engine.helper import POSSIBLE, Helper

pytestmark = pytest.mark.skipif(not POSSIBLE, reason="no helpers on this system")

ROOT = Path(__file__).parents[2]


def started() -> Helper:
    return Helper("tests.engine.helped")


def await_ready(helper: Helper) -> Helper:
    assert select.select([helper._connection], [], [], 60)[0]
    return helper


@pytest.fixture(scope="module")
def shared() -> Iterator[Helper]:
    """One for all tests that leave it as it was."""
    helper = await_ready(started())
    yield helper
    helper.close()


@pytest.fixture
def own() -> Iterator[Helper]:
    helper = await_ready(started())
    yield helper
    helper.close()


def ask(helper: Helper, do: str, *arrays: Any, **settings: Any) -> list[Any] | None:
    call = helper.start({"do": do, **settings}, arrays)
    return None if call is None else call.result()


def count(helper: Helper) -> int:
    """How many calls the helper keeps something of."""
    found = ask(helper, "count")
    assert found is not None
    return int(found[0])


def number_of(helper: Helper) -> int:
    found = ask(helper, "count")
    assert found is not None
    return int(found[1])


def is_gone(process: int) -> bool:
    """Within ten seconds; one that nobody waits for yet is gone too."""
    for _ in range(1000):
        try:
            os.kill(process, 0)
            if Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.01)
    return False


def open_files() -> int:
    return len(os.listdir("/dev/fd"))


def test_it_computes_and_keeps(shared: Helper) -> None:
    call = shared.start({"do": "keep"}, [np.arange(3.0), np.array([4.0])])
    assert call is not None
    found = call.result()
    assert found is not None and [array.tolist() for array in found] == [[0, 2, 4], [8]]
    for factor in (1, 3):
        back = call.start_back({"factor": factor}, [np.array(10.0)])
        assert back is not None
        found = back.result()
        assert found is not None
        assert [array.tolist() for array in found] == [[0, 10 * factor, 20 * factor], [40 * factor]]
    assert ask(shared, "keep", None) == [None]


def test_it_lets_go_of_what_is_not_needed(shared: Helper) -> None:
    calls = [shared.start({"do": "keep"}, [np.ones(3)]) for _ in range(5)]
    assert count(shared) == 5
    del calls[1:]
    assert count(shared) == 1
    calls.clear()
    assert count(shared) == 0


def test_memory_is_used_again(shared: Helper) -> None:
    rng, kept = np.random.default_rng(0), None
    for _ in range(300):
        size = int(rng.integers(0, 50_000))
        call = shared.start({"do": "keep"}, [rng.random(size)])
        assert call is not None
        found = call.result()
        assert found is not None and found[0].shape == (size,)
        kept = call  # two at a time
    assert kept is not None
    for area in (shared._sent, shared._received):
        assert os.fstat(area.descriptor).st_size <= 8 * 50_000 * 8 + 2**20


def test_what_fails_is_none_and_the_next_call_is_right(shared: Helper) -> None:
    assert ask(shared, "fail") is None
    call = shared.start({"do": "fail"}, [])
    assert call is not None and call.result() is None
    back = call.start_back({"factor": 1}, [np.array(1.0)])  # of which nothing was kept
    assert back is not None and back.result() is None
    assert ask(shared, "keep", np.ones(1)) == [2.0]


def test_what_would_warn_is_left_to_whoever_asked(shared: Helper) -> None:
    for do, expected in (("overflow", np.inf), ("underflow", 0)):
        with np.errstate(all="ignore"):
            assert ask(shared, do, np.ones(1)) == [expected]
        for how in ("warn", "raise", "print"):
            with np.errstate(all=how):
                assert ask(shared, do, np.ones(1)) is None
    assert ask(shared, "overflow", np.ones(1)) is None
    assert ask(shared, "underflow", np.ones(1)) == [0]  # as numpy usually does


def test_a_call_that_nobody_waits_for(shared: Helper) -> None:
    first = shared.start({"do": "keep"}, [np.ones(2)])
    second = shared.start({"do": "keep"}, [np.ones(3)])
    assert first is not None and second is not None
    assert first.result() is None
    found = second.result()
    assert found is not None and found[0].shape == (3,)
    assert second.result() is None
    del first, second
    assert count(shared) == 0


def test_it_is_quiet(shared: Helper, capfd: pytest.CaptureFixture[str]) -> None:
    assert ask(shared, "say") == []
    assert capfd.readouterr() == ("", "")


def test_another_thread_works_alone(shared: Helper) -> None:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(shared.start({"do": "count"}, [])))
    thread.start()
    thread.join()
    assert found == [None]
    assert count(shared) == 0


def test_before_it_is_ready() -> None:
    helper = started()
    assert ask(helper, "count") is None
    await_ready(helper)
    assert count(helper) == 0
    helper.close()
    assert ask(helper, "count") is None


@pytest.mark.parametrize("do", ["die", "killed before", "killed within"])
def test_it_may_die(own: Helper, do: str) -> None:
    kept = own.start({"do": "keep"}, [np.ones(3)])
    process = number_of(own)
    if do == "killed before":
        os.kill(process, signal.SIGKILL)
        assert is_gone(process)
    call = own.start({"do": "sleep" if "killed" in do else "die", "seconds": 60}, [])
    if do == "killed within":
        os.kill(process, signal.SIGKILL)
    assert call is None or call.result() is None
    assert ask(own, "count") is None
    assert kept is not None and kept.start_back({"factor": 1}, [np.array(1.0)]) is None
    del kept


def test_one_that_cannot_start_leaves_nothing() -> None:
    helper = Helper("tests.engine.no_such_module")
    await_ready(helper)  # there is an end to be read
    assert ask(helper, "count") is None
    helper.close()


class Interrupted(BaseException):
    """As Ctrl-C."""


def interrupt_after(seconds: float) -> None:
    def interrupt(*_: Any) -> None:
        raise Interrupted

    signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)


def test_an_interrupt_while_waiting_ends_it(own: Helper) -> None:
    process = number_of(own)
    before = signal.getsignal(signal.SIGALRM)
    call = own.start({"do": "sleep", "seconds": 60}, [])
    assert call is not None
    try:
        interrupt_after(0.1)
        with pytest.raises(Interrupted):
            call.result()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert is_gone(process)
    assert ask(own, "count") is None


@pytest.mark.parametrize(("name", "after"), [("send", False), ("send", True), ("receive", True)])
def test_a_message_that_was_cut_short_ends_it(
    own: Helper, monkeypatch: pytest.MonkeyPatch, name: str, after: bool
) -> None:
    process, function = number_of(own), getattr(module, name)

    def cut(*arguments: Any) -> Any:
        if after:
            function(*arguments)
        raise Interrupted

    monkeypatch.setattr(module, name, cut)
    with pytest.raises(Interrupted):
        ask(own, "count")
    monkeypatch.undo()
    assert is_gone(process)
    assert ask(own, "count") is None


def test_no_memory_to_place_the_arrays(own: Helper, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> Any:
        raise OSError("no space left")

    monkeypatch.setattr(own._sent, "place", full)
    assert ask(own, "keep", np.ones(3)) is None


def test_whatever_the_default_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(0.01)
    try:
        helper = await_ready(started())
    finally:
        socket.setdefaulttimeout(before)
    time.sleep(0.05)
    assert ask(helper, "sleep", seconds=0.05) == []
    helper.close()


def end_by_closing(helper: Helper) -> None:
    helper.close()
    helper.close()


@pytest.mark.parametrize("end", [end_by_closing, lambda helper: None], ids=["closed", "forgotten"])
@pytest.mark.parametrize("ready", [True, False])
def test_it_leaves_nothing(end: Callable[[Helper], None], ready: bool) -> None:
    gc.collect()
    before = open_files()
    helper = started()
    process = helper.close.peek()[2][0].pid
    if ready:
        await_ready(helper)
        assert process == number_of(helper)
    end(helper)
    del helper
    assert is_gone(process)
    assert open_files() == before


def test_a_call_that_outlives_the_end(own: Helper, tmp_path: Path) -> None:
    call = own.start({"do": "keep"}, [np.arange(3.0)])
    assert call is not None
    found = call.result()
    own.close()
    with contextlib.ExitStack() as files:
        for i in range(4):  # they have the numbers of what was closed
            files.enter_context(open(tmp_path / str(i), "w+b"))
        assert call.start_back({"factor": 1}, [np.ones(10**6)]) is None
        assert call.result() is None
    assert not any(path.stat().st_size for path in tmp_path.iterdir())
    assert found is not None and found[0].tolist() == [0, 2, 4]
    del call


def test_no_process_to_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    gc.collect()
    before = open_files()

    def refuse(*_: Any, **__: Any) -> Any:
        raise BlockingIOError("Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    with pytest.raises(OSError, match="temporarily"):
        started()
    assert open_files() == before


BEGIN = """
import os, sys, time, warnings
import tinygrad_attn.nn.sharing
warnings.simplefilter("ignore", DeprecationWarning)  # of a fork where numpy has threads
from tinygrad_attn.engine.helper import Helper
helper = Helper("tinygrad_attn.nn.sharing")
process = helper.close.peek()[2][0].pid
def ready():
    until = time.monotonic() + 60
    while helper.close.alive and not helper._at_hand() and time.monotonic() < until:
        time.sleep(0.01)
    return helper.close.alive
"""


def run(script: str, arguments: Sequence[str] = ("-c",), **settings: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "error", *arguments, *([script] if arguments == ("-c",) else [])]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **settings)


def environment(**changes: str) -> dict[str, str]:
    return {**{k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}, **changes}


def trap(path: Path) -> Path:
    """A directory whose files have the names of modules, for whoever imports from where he stands."""
    for name in ("json", "numpy", "socket", "signal", "tinygrad_attn", "warnings"):
        (path / f"{name}.py").write_text("raise SystemExit('trapped')\n")
    return path


@pytest.mark.parametrize("how", ["-c", "-", "script"])
def test_it_starts_from_any_directory(tmp_path: Path, how: str) -> None:
    where = str(trap(tmp_path))
    script = f"{BEGIN}\nprint(ready())\nhelper.close()\n".replace(
        "\nhelper =", f"\nos.chdir({where!r})\nhelper ="
    )
    if how == "script":  # the package is found by the environment
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        (elsewhere / "script.py").write_text(script)
        process = run("", [str(elsewhere / "script.py")], cwd=where, env=environment(PYTHONPATH=str(ROOT)))
        found = process.communicate(timeout=60)
    elif how == "-":  # as an interactive session, where the package is found in the directory at hand
        process = run("", ["-"], cwd=ROOT, env=environment(), stdin=subprocess.PIPE)
        found = process.communicate(script, timeout=60)
    else:
        process = run(script, cwd=ROOT, env=environment(PYTHONPATH="tests:."))
        found = process.communicate(timeout=60)
    assert found == ("True\n", "") and process.returncode == 0


def test_it_ends_when_its_parent_is_killed_even_if_a_fork_lives_on() -> None:
    script = f"""{BEGIN}
assert ready()
fork = os.fork()
if not fork:
    asked = helper.start({{}}, [])
    helper.close()
    print(process, os.getpid(), asked, flush=True)
    sys.stdout.close(); os.close(1); os.close(2)
    time.sleep(60)
    os._exit(0)
time.sleep(60)
"""
    parent = run(script, cwd=ROOT, env=environment())
    assert parent.stdout is not None
    helper, fork, asked = parent.stdout.readline().split()
    try:
        assert asked == "None"
        assert Path(f"/proc/{helper}").exists() or not Path("/proc").exists()
        parent.kill()
        assert is_gone(int(helper))
        assert parent.communicate(timeout=60) == ("", "")
    finally:
        os.kill(int(fork), signal.SIGKILL)


def test_the_end_of_the_interpreter_ends_it() -> None:
    process = run(f"{BEGIN}\nassert ready()\nprint(process)\n", cwd=ROOT, env=environment())
    out, err = process.communicate(timeout=60)
    assert err == "" and process.returncode == 0
    assert is_gone(int(out))


def test_a_fork_that_ends_leaves_the_helper_alone() -> None:
    script = f"""{BEGIN}
assert ready()
fork = os.fork()
if not fork:
    sys.exit(0)
assert os.waitpid(fork, 0)[1] == 0
print(helper.start({{}}, []) is not None)
"""
    process = run(script, cwd=ROOT, env=environment())
    assert process.communicate(timeout=60) == ("True\n", "")
