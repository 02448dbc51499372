from __future__ import annotations

from tinygrad_attn.viz import curves

ROWS = [
    {"event": "train", "step": 10, "loss": 2.0},
    {"event": "evaluation", "step": 10, "loss": 1.5, "exact_match": 0.25},
    {"event": "train", "step": 20, "loss": 1.0},
    {"event": "evaluation", "step": 20, "loss": 0.5, "exact_match": 0.75},
    {"event": "test", "step": 20, "loss": 9.0, "exact_match": 0.5},
]


def test_lines_are_the_rows() -> None:
    above, below = curves(ROWS).axes
    lines = {line.get_label(): line.get_xydata().tolist() for line in above.lines}
    assert lines == {"training": [[10, 2.0], [20, 1.0]], "development": [[10, 1.5], [20, 0.5]]}
    assert [line.get_xydata().tolist() for line in below.lines] == [[[10, 0.25], [20, 0.75]]]
    assert above.get_ylim()[0] == 0 and "nats" in above.get_ylabel() and below.get_xlabel() == "step"


def test_nothing_yet() -> None:
    assert curves([]).svg().startswith("<?xml")


def test_rows_without_a_number_are_left_out() -> None:
    odd = [{"event": "train", "step": 30, "loss": loss} for loss in ([1], None, 10**400, "1")]
    above, _ = curves([*ROWS, *odd, {"event": "train", "step": 40}]).axes
    assert above.lines[0].get_xydata().tolist() == [[10, 2.0], [20, 1.0]]


def test_rows_with_nothing_to_draw_are_no_trouble() -> None:
    above, below = curves(
        [{"step": 1}, {"event": "train", "loss": 1.0}, {"event": "evaluation", "step": 1}]
    ).axes
    assert not above.lines and not below.lines and above.get_legend() is None
