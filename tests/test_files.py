"""Whole or not at all: what a reader finds after success, failure and interruption."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from tinygrad_attn.files import read_whole, write_atomically


def test_text_and_bytes_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_atomically(path, "é\r\n\n")
    assert path.read_bytes() == b"\xc3\xa9\r\n\n"
    write_atomically(str(path), b"\x00\xff")
    assert path.read_bytes() == b"\x00\xff"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_atomically("here", b"1")
    assert (tmp_path / "here").read_bytes() == b"1"


def test_longest_possible_name(tmp_path: Path) -> None:
    write_atomically(tmp_path / ("x" * 255), b"1")
    assert os.listdir(tmp_path) == ["x" * 255]


@pytest.mark.skipif(os.name == "nt", reason="POSIX permissions")
@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_permissions_follow_the_umask(tmp_path: Path, mask: int, mode: int) -> None:
    before = os.umask(mask)
    try:
        write_atomically(tmp_path / "a", b"1")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == mode


@pytest.mark.skipif(os.name == "nt", reason="links need rights on Windows")
def test_a_link_keeps_pointing_to_where_it_did(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    real = tmp_path / "elsewhere" / "real"
    real.write_bytes(b"old")
    link = tmp_path / "link"
    link.symlink_to(real)
    write_atomically(link, b"new")
    assert link.is_symlink() and real.read_bytes() == b"new"


@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("stage", ["fsync", "replace"])
def test_failure_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str, failure: BaseException
) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")

    def fail(*_: object) -> None:
        raise failure

    monkeypatch.setattr(os, stage, fail)
    with pytest.raises(type(failure)):
        write_atomically(path, b"new")
    monkeypatch.undo()
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]


def test_text_that_is_no_utf8_touches_nothing(tmp_path: Path) -> None:
    with pytest.raises(UnicodeEncodeError):
        write_atomically(tmp_path / "a", "\udcff")
    assert os.listdir(tmp_path) == []


def test_missing_folder_names_the_path_that_was_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "a"
    with pytest.raises(FileNotFoundError) as caught:
        write_atomically(path, b"1")
    assert caught.value.filename == str(path)
    assert str(caught.value).endswith(f"'{path}'")


def test_a_folder_in_the_way_is_an_error_and_stays(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(OSError, match="a"):
        write_atomically(tmp_path / "a", b"1")
    assert os.listdir(tmp_path) == ["a"]


def test_written_data_and_name_are_forced_to_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[bool] = []
    real = os.fsync

    def note(descriptor: int) -> None:
        synced.append(stat.S_ISDIR(os.fstat(descriptor).st_mode))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    write_atomically(tmp_path / "a", b"1")
    assert synced == ([False] if os.name == "nt" else [False, True])


@pytest.mark.skipif(os.name == "nt", reason="no pipes with names")
def test_a_pipe_takes_the_data_and_stays(tmp_path: Path) -> None:
    pipe, link, seen = tmp_path / "pipe", tmp_path / "link", []
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    reader = threading.Thread(target=lambda: seen.append(pipe.read_bytes()))
    reader.start()
    write_atomically(link, b"1")
    reader.join()
    assert seen == [b"1"] and pipe.is_fifo() and link.is_symlink()


@pytest.mark.skipif(os.name == "nt", reason="no pipes with names")
def test_what_may_never_end_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="a device or a pipe, expected a file"):
        read_whole(tmp_path / "pipe")
    (tmp_path / "file").write_bytes(b"1")
    assert read_whole(tmp_path / "file") == b"1"
