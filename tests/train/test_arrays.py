from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save

from tinygrad_attn.errors import CheckpointError
from tinygrad_attn.train.arrays import pack, unpack

ARRAYS = {
    "b/weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "a": np.array(1.5),
    "empty": np.zeros((0, 3), np.float32),
    "transposed": np.arange(6, dtype=np.float64).reshape(2, 3).T,
}


def test_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(pack(ARRAYS, {"step": 3, "wide": 2**127, "π": [0.1, None]}))
    arrays, note = unpack(path)
    assert note == {"step": 3, "wide": 2**127, "π": [0.1, None]}
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(arrays[name], array)
    assert load_file(path).keys() == ARRAYS.keys()  # anyone's safetensors reads it


def test_the_same_content_gives_the_same_bytes() -> None:
    backwards = dict(reversed(ARRAYS.items()))
    assert pack(ARRAYS, {"x": 1, "y": 2}) == pack(backwards, {"y": 2, "x": 1})


def test_damage_anywhere_is_found(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    whole = pack(ARRAYS, {"step": 3})
    path.write_bytes(whole)
    assert unpack(path)[1] == {"step": 3}
    rng = np.random.default_rng(0)
    for place in range(0, len(whole), 3):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError, match=r"a\.safetensors: "):
            unpack(path)
    for length in range(0, len(whole), 3):
        path.write_bytes(whole[:length])
        with pytest.raises(CheckpointError, match=r"a\.safetensors"):
            unpack(path)


@pytest.mark.parametrize("content", [b"", b"x" * 100, b"\xff" * 8, b"\x02" + b"\0" * 7 + b"{}", save(ARRAYS)])
def test_foreign_files(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"a\.safetensors: (damaged|not written by tinygrad_attn)"):
        unpack(path)


def test_missing_and_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="No such file"):
        unpack(tmp_path / "a.safetensors")
    with pytest.raises(CheckpointError, match="directory"):
        unpack(tmp_path)


@pytest.mark.parametrize("note", [[], "text", 3, None])
def test_notes_that_are_no_mapping(note: Any, tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_bytes(pack({"w": np.ones(2)}, note))
    with pytest.raises(CheckpointError, match=r"a\.safetensors: not written by tinygrad_attn"):
        unpack(tmp_path / "a.safetensors")
