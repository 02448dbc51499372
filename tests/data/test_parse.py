"""Files of pairs: what is accepted, and what a malformed one is told."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinygrad_attn.data.parse import parse_pairs
from tinygrad_attn.errors import DataError


def written(folder: Path, content: bytes) -> Path:
    path = folder / "pairs.tsv"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    "content",
    [
        b"a\tb\nc d\te\n",
        b"a\tb\nc d\te",
        b"a\tb\r\nc d\te\r\n",
        b"a\tb\nc d\te\n\n",
        b"a\tb\nc d\te\n \r\n\n",
        b"\xef\xbb\xbfa\tb\nc d\te\n",
        b" a \t b\nc d\te \n",
    ],
    ids=[
        "plain",
        "no last newline",
        "CRLF",
        "blank last line",
        "blank lines",
        "byte order mark",
        "spaces around",
    ],
)
def test_accepted_forms(tmp_path: Path, content: bytes) -> None:
    parsed = parse_pairs(written(tmp_path, content))
    assert parsed.pairs == (("a", "b"), ("c d", "e"))
    assert parsed.sha256 == hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a\tb\nab\n", ":2: no tab in 'ab', expected source<TAB>target"),
        (b"a\tb\nc\td\te\n", r":2: 2 tabs in 'c\td\te', expected source<TAB>target"),
        (b"a\tb\tc\td\n", r":1: 3 tabs in 'a\tb\tc\td', expected source<TAB>target"),
        (b"\t\t\na\tb\n", ":1: empty line"),
        (b"a\tb\n\tc\n", r":2: empty source in '\tc', expected source<TAB>target"),
        (b"a\tb\nc\t\n", r":2: empty target in 'c\t', expected source<TAB>target"),
        (b"a\tb\nc\t \n", r":2: empty target in 'c\t ', expected"),
        (b"a\tb\n\nc\td\n", ":2: empty line in '', expected source<TAB>target"),
        (b"a\tb\n\xe9\td\n", ":2: byte 0xe9 is not UTF-8, expected UTF-8"),
        ("a\tb\n".encode("utf-16"), ":1: this looks like UTF-16, expected UTF-8"),
        (b"a\tb\nc\x00\td\n", r":2: stray NUL character in 'c\x00\td', expected"),
        (b"a\tb\n\xef\xbb\xbfc\td\n", r":2: stray byte order mark in '\ufeffc\td', expected"),
        (b"a\tb\rc\td\r", r":1: stray carriage return in 'a\tb\rc\td\r', expected"),
        (b"", ": no pairs, expected source<TAB>target on every line"),
        (b"\n \n", ": no pairs, expected"),
        (b"\xef\xbb\xbf", ": no pairs, expected"),
        (b"x" * 1000 + b"\n", ":1: no tab in '" + "x" * 37 + "...', expected"),
    ],
)
def test_malformed_files(tmp_path: Path, content: bytes, message: str) -> None:
    path = written(tmp_path, content)
    with pytest.raises(DataError, match="^" + re.escape(f"{path}{message}")):
        parse_pairs(path)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"missing\.tsv: No such file or directory, expected a file of pairs"):
        parse_pairs(tmp_path / "missing.tsv")
    with pytest.raises(DataError, match="expected a file of pairs"):
        parse_pairs(tmp_path)
    with pytest.raises(DataError, match="null byte, expected a file of pairs"):
        parse_pairs("a\0b")


def test_other_line_ends_of_unicode_are_content(tmp_path: Path) -> None:
    content = "a\u2028b\tc\x0bd\ne\x85f\tg\x1eh\n"
    assert parse_pairs(written(tmp_path, content.encode())).pairs == (
        ("a\u2028b", "c\x0bd"),
        ("e\x85f", "g\x1eh"),
    )


def test_text_is_normalised(tmp_path: Path) -> None:
    content = "e\u0301\tq\u0303\n\u0301\t\U0001f469\u200d\U0001f467\n"
    pairs = (("\u00e9", "q\u0303"), ("\u0301", "\U0001f469\u200d\U0001f467"))
    assert parse_pairs(written(tmp_path, content.encode())).pairs == pairs


side = st.text(
    st.characters(exclude_categories=("Cs",), exclude_characters="\t\n\r\0\ufeff"), min_size=1
).filter(lambda text: text.strip() and text == text.strip(" "))


@given(st.lists(st.tuples(side, side), min_size=1))
def test_any_text_round_trips(tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, str]]) -> None:
    path = tmp_path_factory.mktemp("pairs") / "pairs.tsv"
    path.write_bytes("".join(f"{source}\t{target}\n" for source, target in pairs).encode())
    expected = tuple(tuple(unicodedata.normalize("NFC", text) for text in pair) for pair in pairs)
    assert parse_pairs(path).pairs == expected


@given(st.binary(max_size=40))
def test_any_bytes_are_pairs_or_a_data_error(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.mktemp("pairs") / "pairs.tsv"
    path.write_bytes(content)
    try:
        pairs = parse_pairs(path).pairs
    except DataError as error:
        message = str(error)
    else:
        assert pairs and all(source and target for source, target in pairs)
        return
    assert message.startswith(f"{path}:")


@pytest.mark.parametrize("last", ["\t", " \t ", "\u00a0\t\u00a0"])
def test_a_last_line_with_a_tab_is_a_line(last: str, tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text(f"a\tb\n{last}\n  \n\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"pairs\.tsv:2: empty"):
        parse_pairs(path)
    path.write_text("a\tb\n  \n\n", encoding="utf-8")
    assert parse_pairs(path).pairs == (("a", "b"),)
