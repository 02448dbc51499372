from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
from pathlib import Path
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest

from tinygrad_attn.engine import Tensor
from tinygrad_attn.viz import curves, heatmap

SOURCE, TARGET = ["a", "b", "c", "d"], ["x", "y", "z"]
WEIGHTS = np.array([[0.7, 0.1, 0.1, 0.1], [0.0, 1.0, 0.0, 0.0], [0.25, 0.25, 0.25, 0.25]])


def texts(svg: str) -> list[str]:
    return [node.text or "" for node in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.parametrize("weights", [WEIGHTS, Tensor(WEIGHTS, requires_grad=True), WEIGHTS.tolist()])
def test_rows_are_output_tokens_and_columns_source_tokens(weights: object) -> None:
    axes = heatmap(weights, SOURCE, TARGET).axes[0]
    shown = axes.images[0].get_array()
    np.testing.assert_array_equal(shown, WEIGHTS)
    assert [label.get_text() for label in axes.get_xticklabels()] == SOURCE
    assert [label.get_text() for label in axes.get_yticklabels()] == TARGET
    assert list(axes.get_xticks()) == [0, 1, 2, 3] and list(axes.get_yticks()) == [0, 1, 2]
    assert axes.get_ylim() == (2.5, -0.5)  # the first output token is at the top
    assert axes.images[0].get_clim() == (0, 1) and axes.images[0].get_cmap().name == "gray"


def test_tokens_need_an_order_but_be_no_sequence() -> None:
    """Such as the columns of data frames are."""
    axes = heatmap([[0.5, 0.5]], {"a": 1, "b": 2}, np.array(["c"])).axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["a", "b"]


@pytest.mark.parametrize(
    ("weights", "source", "target", "error", "message"),
    [
        (
            WEIGHTS.T,
            SOURCE,
            TARGET,
            ValueError,
            r"shape \(4, 3\), expected \(3, 4\), a row for each target token",
        ),
        (WEIGHTS, SOURCE[:3], TARGET, ValueError, r"shape \(3, 4\), expected \(3, 3\)"),
        (WEIGHTS, SOURCE, [*TARGET, "<eos>"], ValueError, r"shape \(3, 4\), expected \(4, 4\)"),
        (WEIGHTS[0], SOURCE, TARGET[:1], ValueError, r"shape \(4,\), expected \(1, 4\)"),
        (np.zeros((3, 0)), [], TARGET, ValueError, "source is empty"),
        (np.zeros((0, 4)), SOURCE, [], ValueError, "target is empty"),
        (WEIGHTS * np.nan, SOURCE, TARGET, ValueError, "row 0, column 0 is nan"),
        (WEIGHTS, [4, 5, 6, 7], TARGET, TypeError, "source holds .* expected strings; decode ids first"),
        (WEIGHTS, SOURCE, np.array([4, 5, 6]), TypeError, "target holds"),
        (WEIGHTS.astype(complex), SOURCE, TARGET, TypeError, "dtype complex128"),
        (WEIGHTS, None, TARGET, TypeError, "source holds None, expected strings"),
        (WEIGHTS, SOURCE, 3, TypeError, "target holds 3, expected strings"),
        (WEIGHTS, set(SOURCE), TARGET, TypeError, "source holds .* expected strings"),
        (WEIGHTS, iter(SOURCE), TARGET, TypeError, "source holds .*iterator.*, expected strings"),
        ([[0.5, 0.5], [1.0]], ["a", "b"], ["c", "d"], ValueError, "rows of different lengths"),
    ],
)
def test_what_does_not_fit_is_an_error(
    weights: object, source: list[str], target: list[str], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        heatmap(weights, source, target)


HOSTILE = [
    "$x^2",
    "a$b$c",
    "<b>&\"'",
    "_{}\\",
    "\x1b[31m",
    "\u202e",
    " ",
    "",
    "注意力",
    "שלום",
    "😀",
    "\udcff",
]


def test_every_token_is_shown_literally_and_none_warns(tmp_path: Path) -> None:
    """Warnings are errors here; a missing glyph would be one."""
    picture = heatmap(np.eye(len(HOSTILE)), HOSTILE, HOSTILE, title="$\\frac")
    found = texts(picture.svg())
    for token in HOSTILE[:4] + HOSTILE[8:11]:
        assert found.count(token) == 2
    assert {"␛[31m", "\ufffd", "␣", "∅", "$\\frac"} <= set(found)
    for kind in ("png", "pdf"):
        picture.save(tmp_path / f"a.{kind}")


def test_a_title_is_shown_literally_in_its_lines(tmp_path: Path) -> None:
    picture = heatmap(WEIGHTS, SOURCE, TARGET, title="$α$ <b>\n\nof\x00\ud800\x1b")
    assert {"$α$ <b>", "of␀\ufffd␛"} <= set(texts(picture.svg()))
    for kind in ("png", "pdf"):
        picture.save(tmp_path / f"alignment.{kind}")


def test_saved_files(tmp_path: Path) -> None:
    picture = heatmap(WEIGHTS, SOURCE, TARGET)
    starts = {"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF"}
    for kind, start in starts.items():
        picture.save(tmp_path / f"a.{kind}")
        assert (tmp_path / f"a.{kind}").read_bytes().startswith(start)
    assert sorted(os.listdir(tmp_path)) == ["a.pdf", "a.png", "a.svg"]
    with pytest.raises(ValueError, match=r"a\.jpg: a picture is saved as \.svg, \.png, \.pdf"):
        picture.save(tmp_path / "a.jpg")


def test_the_same_picture_is_the_same_bytes_in_every_process(tmp_path: Path) -> None:
    script = (
        "import sys, numpy as np; from tinygrad_attn.viz import heatmap\n"
        "heatmap(np.eye(3), list('abc'), list('xyz')).save(sys.argv[1])"
    )
    contents = set()
    for seed in ("1", "2"):
        path = tmp_path / f"{seed}.svg"
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run([sys.executable, "-c", script, str(path)], check=True, env=environment)
        contents.add(path.read_bytes())
    assert len(contents) == 1
    assert heatmap(np.eye(3), list("abc"), list("xyz")).svg().encode() in contents


def test_no_global_state_is_left() -> None:
    before = dict(matplotlib.rcParams)
    heatmap(WEIGHTS, SOURCE, TARGET).svg()
    curves([]).svg()
    assert dict(matplotlib.rcParams) == before
    assert "matplotlib.pyplot" not in sys.modules or not sys.modules["matplotlib.pyplot"].get_fignums()


def test_the_users_style_is_neither_changed_nor_drawn_with() -> None:
    plain = heatmap(WEIGHTS, SOURCE, TARGET).svg(), curves([]).svg()
    own = {
        "image.origin": "lower",
        "axes.facecolor": "black",
        "axes.grid": True,
        "font.size": 30,
        "text.usetex": True,
        "savefig.transparent": True,
    }
    with matplotlib.rc_context(own):
        before = dict(matplotlib.rcParams)
        assert (heatmap(WEIGHTS, SOURCE, TARGET).svg(), curves([]).svg()) == plain
        assert dict(matplotlib.rcParams) == before


def test_a_gradient_is_drawn_with_its_sign() -> None:
    picture = heatmap(WEIGHTS - 0.5, SOURCE, TARGET)
    assert picture.axes[0].images[0].get_clim() == (-0.5, 0.5)
    assert len(picture.axes) == 2  # a scale beside
    rounding = WEIGHTS + np.array([[1e-8], [-1e-8], [0]])
    assert heatmap(rounding, SOURCE, TARGET).axes[0].images[0].get_clim() == (0, 1)


def test_few_cells_have_their_numbers() -> None:
    picture = heatmap([[0.31, 0.41, 0.29]], ["h₁", "h₂", "h₃"], ["1"])
    assert {"0.31", "0.41", "0.29"} <= set(texts(picture.svg()))
    black, white = heatmap(np.eye(2), ["a", "b"], ["x", "y"]).axes[0].texts[1:3]
    assert [black.get_text(), black.get_color(), white.get_text(), white.get_color()] == [
        "0.00", "white", "0.00", "white"
    ]  # fmt: skip
    assert heatmap(np.eye(2), ["a", "b"], ["x", "y"]).axes[0].texts[0].get_color() == "black"
    assert not heatmap(np.full((9, 9), 1 / 9), list("abcdefghi"), list("abcdefghi")).axes[0].texts


def test_small_gradients_are_counted_in_a_power_of_ten() -> None:
    picture = heatmap([[3.21e-5, -6.5e-6]], ["a", "b"], ["x"], signed=True)
    assert [text.get_text() for text in picture.axes[0].texts] == ["3.21", "−0.65"]
    assert picture.axes[1].get_ylabel() == "in 10⁻⁵"
    picture = heatmap([[-0.0783, -0.3523]], ["a", "b"], ["x"])
    assert [text.get_text() for text in picture.axes[0].texts] == ["−0.078", "−0.352"]
    assert not picture.axes[1].get_ylabel()
    assert [text.get_text() for text in heatmap([[0, 0]], "ab", "x", signed=True).axes[0].texts] == ["0"] * 2


@pytest.mark.parametrize("size", [1e-7, 1e-200, 5e-324, 1e200, 1e308])
def test_gradients_of_any_size_have_colours(size: float, tmp_path: Path) -> None:
    picture = heatmap([[size, -size]], ["a", "b"], ["x"])
    (image,) = picture.axes[0].images
    red, blue = image.cmap(image.norm(image.get_array()))[0]
    assert red[0] > 2 * red[2] and blue[2] > 2 * blue[0]
    assert [text.get_text() for text in picture.axes[0].texts] == [
        text.replace("-", "−") for text in ("1.00", "-1.00")
    ] or size == 5e-324
    picture.save(tmp_path / "a.png")


def test_numbers_stay_within_their_cells() -> None:
    for weights in (np.eye(8), -np.eye(8) * 0.0123, np.eye(8) * -1234.0):
        axes = heatmap(weights, list("abcdefgh"), list("abcdefgh")).axes[0]
        axes.get_figure().draw_without_rendering()
        cell = axes.get_window_extent().width / 8
        assert max(text.get_window_extent().width for text in axes.texts) < cell


def test_a_notebook_shows_it() -> None:
    assert heatmap(WEIGHTS, SOURCE, TARGET)._repr_svg_() == heatmap(WEIGHTS, SOURCE, TARGET).svg()


@pytest.mark.parametrize("shape", [(1, 1), (1, 60), (60, 1), (120, 120)])
def test_no_label_is_cut_at_any_size(shape: tuple[int, int]) -> None:
    """Every text lies within the saved picture, and labels of neighbours do not overlap."""
    picture = heatmap(np.zeros(shape), ["long source"] * shape[1], ["a long target"] * shape[0])
    picture.draw_without_rendering()
    frame = picture.get_tightbbox().transformed(picture.dpi_scale_trans)
    boxes = [label.get_window_extent() for label in picture.axes[0].get_xticklabels()]
    for box in boxes:
        assert frame.x0 - 1 <= box.x0 and box.x1 <= frame.x1 + 1
    assert all(a.x1 <= b.x0 + 1 for a, b in itertools.pairwise(boxes))
    assert max(picture.get_size_inches()) < 16


def test_threads_may_draw_at_once() -> None:
    before = dict(matplotlib.rcParams)
    results: list[str] = []

    def draw() -> None:
        for _ in range(4):
            results.append(heatmap(WEIGHTS, SOURCE, TARGET).svg())

    threads = [threading.Thread(target=draw) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 16 and set(results) == {heatmap(WEIGHTS, SOURCE, TARGET).svg()}
    assert dict(matplotlib.rcParams) == before


def test_long_names_are_cut_and_of_many_some_are_left_out() -> None:
    picture = heatmap(np.eye(2), ["x" * 10_000, "a"], ["b", "c"])
    names = [label.get_text() for label in picture.axes[0].get_xticklabels()]
    assert names == ["x" * 23 + "…", "a"]
    assert picture.get_figheight() < 6
    tokens = [str(i) for i in range(1000)]
    axes = heatmap(np.eye(1000), tokens, tokens).axes[0]
    for ticks, labels in (
        (axes.get_xticks(), axes.get_xticklabels()),
        (axes.get_yticks(), axes.get_yticklabels()),
    ):
        assert [label.get_text() for label in labels] == [tokens[int(place)] for place in ticks]
        assert 50 < len(ticks) < 200


@pytest.mark.parametrize("shape", [(3, 500), (500, 3)])
def test_the_few_rows_or_columns_of_a_long_matrix_can_be_seen(shape: tuple[int, int], tmp_path: Path) -> None:
    names = [[str(i) for i in range(count)] for count in shape]
    picture = heatmap(np.full(shape, 0.5), names[1], names[0])
    picture.save(tmp_path / "long.png")
    box = picture.axes[0].get_window_extent()
    inches = np.array([box.height, box.width]) / picture.dpi
    short = int(np.argmin(shape))
    assert inches[short] / shape[short] > 0.12
    assert inches[1 - short] < 13
