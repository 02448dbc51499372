"""What `workers` sets for the length of a block: threads of BLAS, memory that is kept, processes."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from tinygrad_attn.engine.modes import thread
from tinygrad_attn.train import guard, usual_workers, workers
from tinygrad_attn.train.guard import Interruption


def blas_threads() -> set[int]:
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


def fails_within() -> None:
    with workers(2) as count:
        crew = thread.mode.workers
        assert count == 2 and crew is not None and crew.count == 2 and blas_threads() <= {1}
        raise KeyError


def test_everything_is_as_before_afterwards() -> None:
    before = blas_threads(), thread.mode.workers
    with pytest.raises(KeyError):
        fails_within()
    assert (blas_threads(), thread.mode.workers) == before


def test_blocks_in_two_threads_that_end_in_turn() -> None:
    before, first, second = blas_threads(), contextlib.ExitStack(), contextlib.ExitStack()
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as other:
        one.submit(first.enter_context, workers(1)).result()
        other.submit(second.enter_context, workers(1)).result()
        one.submit(first.close).result()
        assert blas_threads() <= {1}  # the second block goes on
        other.submit(second.close).result()
    assert blas_threads() == before


def test_the_usual_number() -> None:
    with workers() as count:
        assert count == usual_workers() >= 1


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        ("max 100000", 3),
        ("100000 100000", 1),
        ("250000 100000", 2),
        ("20000 100000", 1),
        ("900000 100000", 3),
        ("", 3),
        (None, 3),
    ],
)
def test_a_container_with_less_than_its_processors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str | None, expected: int
) -> None:
    if limit is not None:
        (tmp_path / "cpu.max").write_text(limit + "\n")
    monkeypatch.setattr(guard, "_QUOTA", str(tmp_path / "cpu.max"))
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 2}, raising=False)
    assert usual_workers() == expected


def test_without_the_library_that_keeps_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", missing)
    with workers(1) as count:
        assert count == 1


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library decides for itself")
def test_memory_of_freed_arrays_is_kept() -> None:
    import resource

    def faults() -> int:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(20):
            np.ones(2**21)  # 16 MB, beyond the 32 MB that glibc learns to keep together with the next
            np.ones(2**22)
            np.ones(2**23)
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    outside = faults()
    with workers(1):
        faults()
        assert faults() < outside / 10
        with workers(1):
            pass
        faults()
        assert faults() < outside / 10  # the block within has not ended it
    assert faults() > outside / 2


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library decides for itself")
def test_arrays_of_medium_size_cost_no_more_afterwards() -> None:
    """glibc learns to keep them; setting what it learned would end that."""
    import resource

    def faults() -> int:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(50):
            np.ones(125_000)
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    with workers(1):
        pass
    faults()
    assert faults() < 50


def test_ctrl_c_is_noted_and_the_handler_is_as_before_afterwards() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Interruption() as interruption:
        signal.raise_signal(signal.SIGINT)
        assert interruption.requested
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_signal_that_is_ignored_stays_so() -> None:
    """As under nohup, or in the background of a script: Python leaves it so, too."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Interruption() as interruption:
            signal.raise_signal(signal.SIGINT)
            assert not interruption.requested
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
