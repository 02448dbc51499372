"""Arrays in memory that two areas of one file see, and messages of any length."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from tinygrad_attn.engine.memory import PATIENCE, Area, receive, room_for, send


@pytest.fixture(params=["memfd", "file"])
def areas(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Area, Area]]:
    """An area, and the same as another process has it."""
    if request.param == "file":  # as on macOS
        monkeypatch.delattr(os, "memfd_create", raising=False)
    with closing(Area.new()) as here, closing(Area(os.dup(here.descriptor))) as there:
        yield here, there


ARRAYS: dict[str, Any] = {
    "numbers": np.arange(6.0).reshape(2, 3),
    "float16": np.arange(5, dtype=np.float16),
    "0-d": np.array(2.5),
    "empty": np.zeros((0, 3)),
    "mask": np.array([True, False, True]),
    "every other": np.arange(10)[::2],
    "backwards": np.arange(10)[::-1],
    "Fortran order": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "a row for all": np.broadcast_to(np.arange(3.0), (4, 3)),
    "big-endian": np.arange(4, dtype=">i4"),
    "over a mebibyte": np.arange(200_000.0),
    "nothing": None,
}


def test_arrays_are_seen_from_the_other_side(areas: tuple[Area, Area]) -> None:
    here, there = areas
    placed = here.place(ARRAYS.values(), 64)
    for found, expected in zip(map(there.array, placed), ARRAYS.values(), strict=True):
        if expected is None:
            assert found is None
        else:
            assert found.dtype == expected.dtype and found.shape == expected.shape
            assert np.array_equal(found, expected) and found.flags.c_contiguous
            assert found.__array_interface__["data"][0] % 64 == 0


@pytest.mark.parametrize("name", [name for name in ARRAYS if name != "nothing"])
def test_each_alone_in_an_empty_area(areas: tuple[Area, Area], name: str) -> None:
    here, there = areas
    (placed,) = here.place([ARRAYS[name]])
    assert np.array_equal(there.array(placed), ARRAYS[name])
    assert os.fstat(here.descriptor).st_size <= room_for([ARRAYS[name]]) + 2**20


def test_room_is_what_placing_takes(areas: tuple[Area, Area]) -> None:
    here, _ = areas
    arrays = [*ARRAYS.values(), np.array(7.0)]
    *_, last = here.place(arrays, 128)
    assert last is not None and last[2] == 128 + room_for(arrays[:-1])
    assert room_for([]) == 0


def test_arrays_outlive_growth_and_the_area(areas: tuple[Area, Area]) -> None:
    here, there = areas
    first = there.array(here.place([np.arange(3.0)])[0])
    there.array(here.place([np.ones(10**6)], 64)[0])
    here.place([np.full(3, 7.0)])
    assert first.tolist() == [7.0, 7.0, 7.0]  # still the same memory
    here.close()
    there.close()
    assert first.tolist() == [7.0, 7.0, 7.0]
    for area in areas:  # for the fixture
        area.descriptor = os.open(os.devnull, os.O_RDONLY)


@pytest.mark.parametrize("size", [0, 1, 70_000, 2_000_000])
def test_messages_arrive_whole(size: int) -> None:
    message = {"text": "ä" * size, "numbers": [1, 2.5, float("inf"), None, True]}
    left, right = socket.socketpair()
    with left, right:
        sender = threading.Thread(target=send, args=(left, message))
        sender.start()
        assert receive(right) == message
        sender.join()


@pytest.mark.parametrize("after", [0, PATIENCE / 4, 40 * PATIENCE])
def test_a_message_that_is_waited_for(after: float) -> None:
    """However late it comes, and without keeping the processor busy for longer than said."""
    left, right = socket.socketpair()
    with left, right:
        sender = threading.Timer(after, send, args=(left, [1]))
        sender.start()
        begun = time.thread_time()
        assert receive(right) == [1]
        assert time.thread_time() - begun < 10 * PATIENCE
        sender.join()


@pytest.mark.parametrize("sent", [b"", b"\0\0", b"\0\0\0\5", b"\0\0\0\5[1,"])
def test_an_end_in_the_middle(sent: bytes) -> None:
    left, right = socket.socketpair()
    with right:
        with left:
            left.sendall(sent)
        with pytest.raises(EOFError):
            receive(right)
