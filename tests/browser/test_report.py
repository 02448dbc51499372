"""The page of a run in a real browser: what it does under the pointer and the keyboard, and how it looks."""

from __future__ import annotations

import json
import math
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import tinygrad_attn as ta
from tests.browser.conftest import Open
from tests.viz.test_report import made, write

pytestmark = pytest.mark.browser


def examples_of(run: Path) -> Any:
    return json.loads((run / "examples.json").read_text("utf-8"))


def page_of(run: Path) -> Path:
    return run / "report.html"


def numbers(page: Any, selector: str) -> list[float]:
    """What cells say they hold."""
    found = page.locator(selector).evaluate_all("cells => cells.map(cell => Number(cell.dataset.value))")
    return [float(x) for x in found]


def flat(rows: list[list[float]]) -> list[float]:
    return [x for row in rows for x in row]


def focused(page: Any, attribute: str) -> str:
    """An attribute of what has the focus."""
    return str(page.evaluate("name => document.activeElement.getAttribute(name)", attribute))


def box(page: Any, label: str) -> Any:
    return page.locator(f'#graph .box[aria-label^="{label},"]')


def test_it_opens_at_once_and_is_small(run: Path, open_page: Open) -> None:
    started = time.perf_counter()
    page = open_page(page_of(run))
    assert time.perf_counter() - started < 2
    assert page_of(run).stat().st_size < 3_000_000
    assert page.title() == "reverse: a run of tinygrad_attn"
    assert page.locator("#curves svg").count() == 4
    assert page.locator(".missing").count() == 0


def test_pointing_at_an_output_word_lights_its_row_and_the_source(run: Path, open_page: Open) -> None:
    page = open_page(page_of(run))
    predictions = examples_of(run)["predictions"]
    place = next(i for i, one in enumerate(predictions) if len(one["tokens"]) > 2)
    one = predictions[place]
    page.locator("#alignment-view [role=option]").nth(place).click()
    assert numbers(page, "#alignment-view table.heat tbody td") == flat(one["weights"])
    page.locator("#alignment-view table.heat tbody tr").nth(1).hover()
    lit = page.locator("#alignment-view tr.lit")
    assert lit.count() == 1 and lit.locator("button").inner_text() == one["tokens"][1]
    most = max(range(len(one["source"])), key=lambda j: one["weights"][1][j])
    says = page.locator("#alignment-view .says").inner_text()
    assert says.startswith("c₂ = ") and f"looked at {one['source'][most]}" in says.replace("\u2068", "")
    shares = page.locator("#alignment-view .strip span").evaluate_all(
        "spans => spans.map(span => span.style.getPropertyValue('--lit'))"
    )
    assert [float(share) for share in shares] == pytest.approx(one["weights"][1], abs=6e-4)


def test_a_table_that_is_copied_has_its_numbers(run: Path, open_page: Open) -> None:
    page = open_page(page_of(run))
    for place in ("#alignment-view", "#flow-view"):
        page.locator(f"{place} table.heat tbody").evaluate("body => getSelection().selectAllChildren(body)")
        copied = page.evaluate("getSelection().toString()").replace("−", "-").splitlines()
        said = [float(entry) for line in copied for entry in line.split("\t")[1:]]
        held = numbers(page, f"{place} table.heat tbody td")
        assert said == pytest.approx(held, rel=0.01) and len(said) > 1


def test_words_are_stepped_through_by_keyboard(run: Path, open_page: Open) -> None:
    page = open_page(page_of(run))
    predictions = examples_of(run)["predictions"]
    place = next(i for i, one in enumerate(predictions) if i and len(one["tokens"]) > 2)
    page.locator("#alignment-view [role=option]").nth(place - 1).click()
    page.keyboard.press("ArrowDown")
    chosen = page.locator("#alignment-view [role=option][aria-selected=true]")
    assert page.locator("#alignment-view [role=option]").nth(place).get_attribute("aria-selected") == "true"
    assert chosen.count() == 1 and focused(page, "aria-selected") == "true"
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    assert page.locator("#alignment-view tr.lit").get_by_role("button").get_attribute("data-row") == "2"
    assert page.locator("#alignment-view .says").inner_text().startswith("c₃ = ")


def test_the_sliders_go_through_training_and_through_the_steps(run: Path, open_page: Open) -> None:
    page = open_page(page_of(run))
    snapshots = [json.loads(line) for line in (run / "snapshots.jsonl").read_text("utf-8").splitlines()]
    training, steps = (
        page.get_by_role("slider", name="Training"),
        page.get_by_role("slider", name="Decoder step"),
    )
    assert numbers(page, "#flow-view .heat tbody td") == flat(examples_of(run)["flows"][0]["α"])
    training.focus()
    page.keyboard.press("Home")
    assert "before training" in page.locator("#flow-view .slider").first.inner_text()
    for place, snapshot in enumerate(snapshots):
        if place:
            page.keyboard.press("ArrowRight")
        flow = snapshot["flows"][0]
        assert numbers(page, "#flow-view .heat tbody td") == flat(flow["α"])
    steps.focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("#flow-view tr.lit button").get_attribute("data-row") == "1"
    rows = page.locator("#flow-view .right .numbers tbody tr")
    assert numbers(page, "#flow-view .right .numbers tbody tr:nth-child(2) td") == flow["∂α"][1]
    assert rows.count() == 3 + len(flow["h"])
    amount = next(amount for user, used, amount in flow["links"] if (user, used) == ("c2", "α2"))
    shown = page.locator('#flow-view [data-link="c2 α2"]').text_content()
    assert float(shown.replace("−", "-")) == pytest.approx(amount, rel=6e-3)
    page.get_by_role("radio", name="∂loss/∂e").click()
    assert numbers(page, "#flow-view .heat tbody td") == flat(flow["∂e"])


def test_training_can_be_played(run: Path, open_page: Open) -> None:
    page = open_page(page_of(run))
    page.get_by_role("button", name="Play training").click()
    slider = page.get_by_role("slider", name="Training")
    assert slider.input_value() == "0"
    until = time.monotonic() + 5
    while slider.input_value() == "0" and time.monotonic() < until:
        page.wait_for_timeout(50)
    assert slider.input_value() == "1"
    page.get_by_role("button", name="Pause").click()
    assert page.get_by_role("button", name="Play training").count() == 1


def test_playing_ends_where_the_slider_was_moved_to_the_end(run: Path, open_page: Open) -> None:
    page = open_page(page_of(run))
    page.get_by_role("button", name="Play training").click()
    slider = page.get_by_role("slider", name="Training")
    slider.focus()
    page.keyboard.press("End")
    last = slider.input_value()
    page.get_by_role("button", name="Play training").wait_for(timeout=5000)
    assert slider.input_value() == last


def test_a_chosen_tensor_shows_its_arrays_and_lights_its_paths(run: Path, open_page: Open) -> None:
    page = open_page(page_of(run))
    graph = examples_of(run)["graph"]
    alpha = next(one for one in graph["boxes"] if one["label"] == "α₂")
    box(page, "α₂").click()
    panel = page.locator("#graph .panel")
    assert panel.get_by_role("heading", level=3).inner_text().startswith("α₂")
    assert numbers(page, '#graph [aria-label="Value of α₂"] [data-value]') == alpha["value"]["data"]
    assert numbers(page, '#graph [aria-label="Gradient of α₂"] [data-value]') == alpha["gradient"]["data"]
    # The gradient comes by c₂ alone, and goes on to e₂ alone.
    by_label = {one["id"]: one["label"] for one in graph["boxes"]}
    ends = [(by_label[line["source"]], by_label[line["target"]]) for line in graph["lines"]]
    for pair in (("α₂", "c₂"), ("e₂", "α₂"), ("s₁", "e₂"), ("c₁", "s₁"), ("h", "c₁")):
        line = graph["lines"][ends.index(pair)]
        drawn = page.locator(f'#graph .edge[data-from="{line["source"]}"][data-to="{line["target"]}"]')
        assert "lit" in drawn.get_attribute("class"), pair
    beside = graph["lines"][ends.index(("h", "c₂"))]  # it is no part of a path through α₂
    drawn = page.locator(f'#graph .edge[data-from="{beside["source"]}"][data-to="{beside["target"]}"]')
    assert "lit" not in drawn.get_attribute("class")
    flowed = next(line for line, pair in zip(graph["lines"], ends, strict=True) if pair == ("α₂", "c₂"))
    assert numbers(page, "#graph ul.amounts span")[0] == flowed["gradient"]["norm"]
    shown = float(page.locator("#graph ul.amounts span").first.inner_text().replace("−", "-"))
    assert shown == pytest.approx(flowed["gradient"]["norm"], rel=1e-3)
    page.keyboard.press("Escape")
    assert page.locator("#graph .edge.lit").count() == 0


def test_the_uses_of_a_tensor_sum_to_its_gradient(run: Path, open_page: Open) -> None:
    page = open_page(page_of(run))
    box(page, "s₁").click()
    assert "The sum of what comes back through 3 uses" in page.locator("#graph .panel").inner_text()
    page.locator("#graph ul.amounts").first.get_by_role("button", name="Go to e₂").click()
    assert page.locator("#graph .panel h3").inner_text().startswith("e₂")


def test_scopes_fold_and_unfold(run: Path, open_page: Open) -> None:
    page = open_page(page_of(run))
    assert box(page, "α₁").count() == 1 and box(page, "α₃").count() == 0
    page.get_by_role("button", name="Open step 3").click()
    assert box(page, "α₃").count() == 1
    page.get_by_role("button", name="Fold step 3").click()
    assert box(page, "α₃").count() == 0
    page.get_by_role("button", name="Unfold all").click()
    assert box(page, "α₃").count() == 1 and page.locator("#graph .box.module").count() == 0
    page.get_by_role("button", name="Fold all", exact=True).click()
    assert page.locator("#graph .box").count() == 5  # four modules and the loss
    page.get_by_role("button", name="Fold steps").click()
    assert box(page, "h").count() == 1 and box(page, "α₁").count() == 0
    before = page.locator("#graph .box").count()
    page.get_by_label("weights").check()
    assert page.locator("#graph .box").count() > before


def test_no_boxes_overlap_whatever_is_open(run: Path, open_page: Open) -> None:
    page = open_page(page_of(run))
    page.get_by_label("weights").check()
    for name in ("Fold all", "Fold steps", "Unfold all"):
        page.get_by_role("button", name=name, exact=True).click()
        places = page.locator("#graph .box").evaluate_all(
            "boxes => boxes.map(b => b.getBoundingClientRect()).map(r => [r.left, r.top, r.right, r.bottom])"
        )
        frame = page.locator("#graph .canvas").bounding_box()
        for i, (left, top, right, bottom) in enumerate(places):
            assert left >= frame["x"] and right <= frame["x"] + frame["width"]
            assert top >= frame["y"] and bottom <= frame["y"] + frame["height"]
            for a, b, c, d in places[:i]:
                assert right <= a or c <= left or bottom <= b or d <= top


def test_amounts_cover_nothing(run: Path, open_page: Open) -> None:
    page = open_page(page_of(run))
    page.get_by_role("button", name="Unfold all").click()
    box(page, "α₃").click()
    covers = page.locator("#graph .amount.lit").evaluate_all(
        """amounts => {
          const boxes = [...document.querySelectorAll('#graph .box')].concat(amounts);
          const places = new Map(boxes.map(one => [one, one.getBoundingClientRect()]));
          return amounts.map(one => boxes.filter(other => {
            const [a, b] = [places.get(one), places.get(other)];
            return other !== one && Math.min(a.right, b.right) - Math.max(a.left, b.left) > 2
              && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 2;
          }).length);
        }"""
    )
    assert len(covers) > 10 and sum(covers) == 0


def test_search_finds_opens_and_chooses(run: Path, open_page: Open) -> None:
    page = open_page(page_of(run))
    search = page.get_by_role("searchbox")
    search.fill("α₄")
    assert "1 found" in page.locator("#graph .tools").inner_text()
    assert box(page, "α₄").count() == 0
    search.press("Enter")
    assert {"found", "chosen"} <= set(box(page, "α₄").get_attribute("class").split())
    assert page.locator("#graph .panel h3").inner_text().startswith("α₄")
    search.fill("gru_cell")
    search.press("Enter")
    search.press("Enter")
    assert page.locator("#graph .panel h3").inner_text().startswith("s₂")
    search.fill("no such thing")
    assert "0 found" in page.locator("#graph .tools").inner_text()


def test_the_graph_is_walked_by_keyboard(run: Path, open_page: Open) -> None:
    page = open_page(page_of(run))
    box(page, "e₁").focus()
    page.keyboard.press("ArrowDown")
    assert focused(page, "aria-label").startswith("α₁,")
    page.keyboard.press("Enter")
    assert page.locator("#graph .panel h3").inner_text().startswith("α₁")
    page.keyboard.press("Escape")
    assert "Choose a tensor" in page.locator("#graph .panel").inner_text()
    folded = page.locator('#graph [aria-label^="Open step 3"]')
    folded.focus()
    page.keyboard.press("Enter")
    assert focused(page, "aria-label") == "Fold step 3"
    assert page.locator('#graph [tabindex="0"][data-id]').count() == 1  # one place in the order of Tab


@pytest.mark.parametrize(
    "place",
    [
        "#curves svg",
        '.examples [tabindex="0"]',
        '#alignment-view .heat [tabindex="0"]',
        '#flow .choices [tabindex="0"]',
        '#graph .canvas [tabindex="0"]',
    ],
)
def test_commands_of_the_browser_stay_its_own(run: Path, open_page: Open, place: str) -> None:
    page = open_page(page_of(run))
    page.locator(place).first.focus()
    page.evaluate("() => { window.taken = []; window.focusedAtFirst = document.activeElement; }")
    page.evaluate("addEventListener('keydown', event => event.defaultPrevented && taken.push(event.key))")
    before = page.locator("#graph .canvas > g").get_attribute("transform")
    for keys in ("Alt+ArrowLeft", "Alt+ArrowRight", "Control+Home", "Control+=", "Control+-", "Control+0"):
        page.keyboard.press(keys)
    assert page.evaluate("taken") == []
    assert page.evaluate("document.activeElement === focusedAtFirst")
    assert page.locator("#graph .canvas > g").get_attribute("transform") == before


def test_a_window_of_another_size_shows_the_same_part_of_the_graph(run: Path, open_page: Open) -> None:
    page = open_page(page_of(run))
    page.locator("#graph .canvas").scroll_into_view_if_needed()

    def beside_the_middle() -> float:
        frame, it = page.locator("#graph .canvas").bounding_box(), box(page, "loss").bounding_box()
        return float(it["x"] - frame["x"] - frame["width"] / 2)

    for _ in range(3):
        page.get_by_role("button", name="Zoom in").click()
    before = scale(page), beside_the_middle()
    page.set_viewport_size({"width": 1000, "height": 700})
    page.wait_for_timeout(100)
    assert (scale(page), beside_the_middle()) == (pytest.approx(before[0]), pytest.approx(before[1], abs=1))
    page.get_by_role("button", name="Fit").click()
    page.set_viewport_size({"width": 700, "height": 700})
    page.wait_for_timeout(100)
    frame, it = page.locator("#graph .canvas").bounding_box(), box(page, "loss").bounding_box()
    assert frame["x"] < it["x"] and it["x"] + it["width"] < frame["x"] + frame["width"]


def test_the_very_name_is_found_first(run: Path, open_page: Open) -> None:
    page = open_page(page_of(run))
    page.get_by_role("searchbox").fill("h")
    page.get_by_role("searchbox").press("Enter")
    assert page.locator("#graph .panel h3 bdi").inner_text() == "h"
    page.get_by_role("searchbox").fill("s₂")
    page.get_by_role("searchbox").press("Enter")
    assert page.locator("#graph .panel h3 bdi").inner_text() == "s₂"


def test_folded_boxes_count_every_tensor_in_them(run: Path, open_page: Open) -> None:
    page = open_page(page_of(run))
    boxes = examples_of(run)["graph"]["boxes"]
    page.get_by_role("button", name="Fold all", exact=True).click()
    for scope in {one["scope"][0] for one in boxes if one["scope"]}:
        count = sum(one["tensors"] for one in boxes if one["scope"][:1] == [scope])
        assert page.locator(f'#graph [aria-label="Open {scope}, {count} tensors"]').count() == 1


def scale(page: Any) -> float:
    return float(page.locator("#graph .canvas > g").evaluate("g => g.getCTM().a"))


def test_pan_and_zoom(run: Path, open_page: Open) -> None:
    page = open_page(page_of(run))
    page.locator("#graph .canvas").scroll_into_view_if_needed()
    start = scale(page)
    page.get_by_role("button", name="Zoom in").click()
    assert scale(page) == pytest.approx(1.25 * start, rel=1e-3)
    before = box(page, "loss").bounding_box()
    frame = page.locator("#graph .canvas").bounding_box()
    x, y = frame["x"] + 20, frame["y"] + frame["height"] - 20
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 50, y - 30, steps=4)
    page.mouse.up()
    after = box(page, "loss").bounding_box()
    assert after["x"] - before["x"] == pytest.approx(50, abs=6)
    assert after["y"] - before["y"] == pytest.approx(-30, abs=6)
    box(page, "loss").focus()
    page.keyboard.press("0")
    assert scale(page) == pytest.approx(start, rel=1e-3)
    page.keyboard.press("-")
    assert scale(page) == pytest.approx(0.8 * start, rel=1e-3)


def test_curves_tell_their_figures(run: Path, open_page: Open) -> None:
    page = open_page(page_of(run))
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text("utf-8").splitlines()]
    losses = [row["loss"] for row in rows if row["event"] == "train"]
    page.locator("#curves svg").first.focus()
    page.keyboard.press("Home")
    said = page.locator("#curves .readout").first.inner_text()
    assert said.startswith("step 10 · training ")
    assert float(said.split("training ")[1]) == pytest.approx(losses[0], rel=6e-3)
    page.keyboard.press("ArrowRight")
    assert page.locator("#curves .readout").first.inner_text().startswith("step 20 · ")


HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(2)</script>",
    "مرحبا",
    "👩‍👩‍👧",
    "a-word-that-is-much-longer-than-any-other-word-in-the-data",
]


def test_a_long_history_has_curves(tmp_path: Path, open_page: Open) -> None:
    run = made()
    rows = [{"event": "train", "step": step, "loss": 1 / step} for step in range(1, 150_001)]
    write(tmp_path, replace(run, rows=rows))
    page = open_page(ta.viz.report(tmp_path))
    chart = page.locator("#curves svg").first
    assert "training 6.67e−6 at step 150000" in chart.get_attribute("aria-label")
    chart.focus()
    page.keyboard.press("Home")
    assert page.locator("#curves .readout").first.inner_text() == "step 1 · training 1"


def test_hostile_words_do_nothing(run: Path, tmp_path: Path, open_page: Open) -> None:
    for name in ("config.json", "metrics.jsonl", "snapshots.jsonl"):
        (tmp_path / name).write_bytes((run / name).read_bytes())
    examples = examples_of(run)
    count = len(HOSTILE)
    words = {"source": HOSTILE, "target": [*HOSTILE, "<eos>"]}
    examples["predictions"] = [
        {
            "source": HOSTILE,
            "tokens": HOSTILE,
            "reference": HOSTILE,
            "right": False,
            "weights": [[1 / count] * count] * count,
            "log_probability": "-Infinity",
        }
    ]
    examples["flows"] = [{**flow, **words} for flow in examples["flows"] if len(flow["source"]) == count]
    examples["graph"].update(words)
    for one in examples["graph"]["boxes"]:
        one["scope"] = [f"{HOSTILE[0]} {name}" for name in one["scope"]]
    (tmp_path / "examples.json").write_text(json.dumps(examples))
    page = open_page(ta.viz.report(tmp_path), viewport={"width": 390, "height": 844})
    assert page.locator("img").count() == 0 and page.locator("script").count() == 2
    assert HOSTILE[0] in page.locator("#alignment-view .strip").inner_text()
    page.locator("#alignment-view table.heat tbody tr").nth(1).hover()
    assert HOSTILE[1] in page.locator("#alignment-view .says").inner_text()
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


@pytest.mark.parametrize("width", [320, 390, 768, 1280, 1920])
def test_no_width_needs_scrolling_sideways(run: Path, open_page: Open, width: int) -> None:
    page = open_page(page_of(run), viewport={"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert scale(page) > 0.5  # the graph can be read at once
    page.get_by_role("button", name="Unfold all").dispatch_event("click")
    box(page, "α₂").dispatch_event("click")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", [320, 420, 768, 1280])
def test_the_graph_opens_as_a_whole(run: Path, open_page: Open, width: int) -> None:
    page = open_page(page_of(run), viewport={"width": width, "height": 900})
    frame = page.locator("#graph .canvas").bounding_box()
    boxes = page.locator("#graph .box").evaluate_all(
        "boxes => boxes.map(b => b.getBoundingClientRect()).map(r => [r.left, r.top, r.right, r.bottom])"
    )
    assert len(boxes) >= 5
    for left, top, right, bottom in boxes:
        assert frame["x"] <= left and right <= frame["x"] + frame["width"]
        assert frame["y"] <= top and bottom <= frame["y"] + frame["height"]
    if width == 420:  # what was folded opens step by step
        page.get_by_role("button", name="Open decoder").click()
        assert page.get_by_role("button", name="Open step 1").count() == 1


@pytest.mark.parametrize("width", [320, 420])
def test_keys_keep_to_their_signs(run: Path, open_page: Open, width: int) -> None:
    page = open_page(page_of(run), viewport={"width": width, "height": 900})
    heights = page.locator(".key").evaluate_all("all => all.map(e => e.getBoundingClientRect().height)")
    assert heights and max(heights) < 30  # one line


def test_a_narrow_screen_shows_the_whole_menu(run: Path, open_page: Open) -> None:
    page = open_page(page_of(run), viewport={"width": 420, "height": 900})
    for link in page.locator(".contents a").all():
        place = link.bounding_box()
        assert place["x"] >= 0 and place["x"] + place["width"] <= 420
    page.get_by_role("link", name="Graph").click()
    page.wait_for_timeout(1000)
    menu = page.locator(".contents").bounding_box()
    assert page.locator("#graph-title").bounding_box()["y"] >= menu["y"] + menu["height"]


def test_what_goes_on_sideways_fades_and_stays_readable(run: Path, open_page: Open) -> None:
    page = open_page(page_of(run), viewport={"width": 420, "height": 900})
    drawing, table = page.locator("#flow-view .right .scroll").all()
    for region in (drawing, table):
        region.scroll_into_view_if_needed()
        assert region.get_attribute("class").split() == ["scroll", "more-right"]
        region.evaluate("region => region.scrollTo({ left: 1e6, behavior: 'instant' })")
        page.wait_for_timeout(100)
        assert region.get_attribute("class").split() == ["scroll", "more-left"]
    heights = drawing.locator("text").evaluate_all(
        "all => all.map(one => one.getBoundingClientRect().height)"
    )
    assert min(heights) >= 10
    wide = open_page(page_of(run))
    assert [one.get_attribute("class") for one in wide.locator("#flow-view .right .scroll").all()] == [
        "scroll"
    ] * 2


def test_no_line_runs_through_an_amount(run: Path, open_page: Open) -> None:
    page = open_page(page_of(run))
    bare = page.evaluate(
        """() => {
          const drawing = document.querySelector('#flow-view .ways');
          const plates = [...drawing.querySelectorAll('.plate')].map(one => one.getBBox());
          const points = [...drawing.querySelectorAll('.way')].flatMap(way => {
            const length = way.getTotalLength();
            return Array.from({ length: 200 }, (_, i) => way.getPointAtLength(length * i / 199));
          });
          // Where figures stand: a box of text is higher than they are.
          const core = b => [b.x, b.y + 3, b.x + b.width, b.y + b.height - 3];
          const crossed = ([x0, y0, x1, y1]) => points.some(
            p => p.x > x0 && p.x < x1 && p.y > y0 && p.y < y1);
          const covered = ([x0, y0, x1, y1]) => plates.some(
            b => b.x <= x0 && b.y <= y0 && b.x + b.width >= x1 && b.y + b.height >= y1);
          return [...drawing.querySelectorAll('.amount')]
            .filter(one => crossed(core(one.getBBox())) && !covered(core(one.getBBox())))
            .map(one => one.textContent);
        }"""
    )
    assert bare == [] and page.locator("#flow-view .amount").count() > 8


AMOUNTS_NEAR_BOXES = """() => {
  const drawing = document.querySelector('#flow-view .ways');
  const boxes = [...drawing.querySelectorAll('.tensor rect')].map(one => one.getBBox());
  return [...drawing.querySelectorAll('.amount')].filter(one => {
    const a = one.getBBox();
    return boxes.some(b => a.x < b.x + b.width + 1 && b.x < a.x + a.width + 1
      && a.y + 3 < b.y + b.height && b.y < a.y + a.height - 3);
  }).map(one => one.textContent);
}"""


@pytest.mark.parametrize("settings", [{"query": "current", "input_feeding": True}, {}, {"attention": "none"}])
def test_amounts_keep_clear_of_the_boxes(tmp_path: Path, open_page: Open, settings: Any) -> None:
    write(tmp_path, made(**settings))
    page = open_page(ta.viz.report(tmp_path))
    for step in range(3):
        page.locator("#flow-view .heat tbody tr").nth(step).hover()
        assert page.locator("#flow-view .amount").count() >= 5
        assert page.evaluate(AMOUNTS_NEAR_BOXES) == []
    assert "what comes from other steps is not drawn" in page.locator("#flow-view .right").inner_text()
    kinds = page.locator("#flow-view").get_by_role("radio", name="∂loss/∂")
    assert kinds.count() == (0 if "attention" in settings else 2)


def of_many_words(folder: Path, words: list[str]) -> Path:
    """The page of a run whose sequences have these words."""
    run = made()
    count = len(words)
    matrix = [[1 / count] * count] * count
    flow = {"source": words, "target": words, "loss": 1, "α": matrix, "∂α": matrix, "∂e": matrix}
    flow |= {"h": {"value": matrix, "key": matrix}, "all": {"whole": matrix[0]}, "logits": matrix[0]}
    flow |= {"s": {"whole": [*matrix[0], 0]}, "links": [["loss", "logits", 1], ["logits", "c1", 0.00123]]}
    words_of = {"source": words, "tokens": words, "reference": words, "weights": matrix}
    predictions = [{**words_of, "right": True, "log_probability": -1}]
    examples = {**(run.examples or {}), "predictions": predictions, "flows": [flow]}
    write(folder, replace(run, snapshots=[], examples=examples))
    return ta.viz.report(folder)


WIDE = {
    "60 words": [f"w{i}" for i in range(1, 61)],
    "16 words": [f"word{i}" for i in range(16)],
    "long words": [f"a-word-of-many-letters-{i}" for i in range(14)],
    "20 digits": [str(i) for i in range(20)],
}


@pytest.mark.parametrize("words", WIDE.values(), ids=WIDE.keys())
def test_columns_are_equally_wide_and_their_words_apart(
    tmp_path: Path, open_page: Open, words: list[str]
) -> None:
    page = open_page(of_many_words(tmp_path, words))
    widths = page.locator("#alignment-view .heat tbody tr:first-child td").evaluate_all(
        "cells => cells.map(cell => cell.getBoundingClientRect().width)"
    )
    assert max(widths) - min(widths) < 0.5
    places = page.locator("#alignment-view .heat thead .word").evaluate_all(
        "words => words.map(one => one.getBoundingClientRect()).map(r => [r.left, r.right])"
    )
    assert all(right + 2 <= left for (_, right), (left, _) in pairwise(places))


def test_of_very_many_words_the_matrices_have_the_first(tmp_path: Path, open_page: Open) -> None:
    started = time.perf_counter()
    page = open_page(of_many_words(tmp_path, [f"w{i}" for i in range(400)]))
    assert time.perf_counter() - started < 8  # 30 s and more with a cell for each pair
    for place in ("#alignment-view", "#flow-view"):
        assert page.locator(f"{place} .heat tbody td").count() == 100 * 100
        note = page.locator(f"{place} .with-scale .quiet").inner_text()
        assert note == "Of 400 source words and 400 output words, up to 100 of each are drawn."


@pytest.mark.parametrize("words", WIDE.values(), ids=WIDE.keys())
def test_nothing_is_cut_on_paper(tmp_path: Path, open_page: Open, words: list[str]) -> None:
    paper = round(182 / 25.4 * 96)  # CSS pixels of A4 between margins of 14 mm
    page = open_page(of_many_words(tmp_path, words), viewport={"width": paper, "height": 900})
    box(page, "h").dispatch_event("click")
    page.emulate_media(media="print")
    page.wait_for_timeout(100)
    assert page.evaluate("document.documentElement.scrollWidth") <= paper
    ends = page.locator(".scroll table, .scroll svg, .scroll td").evaluate_all(
        "all => all.map(one => one.getBoundingClientRect().right)"
    )
    assert len(ends) > 400 and max(ends) <= paper + 1
    clipped = page.locator(".scroll").evaluate_all(
        "all => all.filter(one => getComputedStyle(one).overflowX !== 'visible').length"
    )
    assert clipped == 0
    cells = page.locator("#flow-view .right .numbers td[data-value]")
    assert cells.count() == 5 * len(words)


@pytest.mark.parametrize("width", [360, 420, 768])
def test_the_text_of_charts_can_be_read(run: Path, open_page: Open, width: int) -> None:
    page = open_page(page_of(run), viewport={"width": width, "height": 800})
    scales = page.locator(".chart > svg").evaluate_all("all => all.map(one => one.getScreenCTM().a)")
    assert len(scales) == 6 and min(scales) * 11.5 >= 10


def channels(colour: str) -> list[float]:
    """The numbers of "rgb(r, g, b)", or of "rgba(r, g, b, a)"."""
    return [float(x) for x in colour[colour.index("(") + 1 : -1].split(",")]


def over(colour: list[float], opacity: float, under: list[float]) -> list[float]:
    """What is seen of a colour, which may have an opacity of its own, over another."""
    share = opacity * (colour[3] if len(colour) > 3 else 1.0)
    return [share * a + (1 - share) * b for a, b in zip(colour[:3], under, strict=False)]


def relative(colour: list[float]) -> float:
    """Relative luminance, after WCAG."""
    parts = [x / 255 for x in colour[:3]]
    linear = [x / 12.92 if x <= 0.03928 else math.pow((x + 0.055) / 1.055, 2.4) for x in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def luminance(colour: str) -> float:
    """Relative luminance of "rgb(r, g, b)"."""
    return relative(channels(colour))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark_have_contrast(run: Path, open_page: Open, scheme: str) -> None:
    page = open_page(page_of(run), color_scheme=scheme)
    ground = luminance(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert (ground > 0.5) == (scheme == "light")
    for selector in ("h1", ".lead", ".note", ".contents a", ".figures dt", ".says", "#settings th"):
        ink = luminance(page.locator(selector).first.evaluate("e => getComputedStyle(e).color"))
        low, high = sorted((ground, ink))
        assert (high + 0.05) / (low + 0.05) >= 4.5, selector
    # Pictures: lines and bars, against the page and against the frames of the graph.
    for selector, part in (
        ("#curves .line", "stroke"), (".bar.first", "fill"), (".bar.second", "fill"),
        (".bar.third", "fill"), ("#graph .edge", "stroke"),
    ):  # fmt: skip
        ink = luminance(page.locator(selector).first.evaluate(f"e => getComputedStyle(e).{part}"))
        deep = luminance(page.locator(".ground.deep").first.evaluate("e => getComputedStyle(e).fill"))
        for under in (ground, deep) if "#graph" in selector else (ground,):
            low, high = sorted((under, ink))
            assert (high + 0.05) / (low + 0.05) >= 3, selector


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_on_what_is_lit(run: Path, open_page: Open, scheme: str) -> None:
    page = open_page(page_of(run), color_scheme=scheme)
    page.locator("#flow-view table.heat tbody tr").first.hover()
    page.wait_for_timeout(300)  # until the colours have changed
    on_tint = page.locator(".strip span, .heat th.lit > span").evaluate_all(
        "all => all.map(e => getComputedStyle(e)).map(style => [style.color, 1, style.backgroundColor, 1])"
    )
    in_box = page.locator(".box:not(.chosen):has(.shade) .below").evaluate_all(
        """all => all.map(e => [getComputedStyle(e), e.parentElement.querySelector('.shade')])
          .map(([style, shade]) => [style.fill, Number(style.fillOpacity), getComputedStyle(shade).fill,
            Number(shade.getAttribute('opacity'))])"""
    )
    ground = channels(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(on_tint) > 2 and len(in_box) > 5
    for ink, amount, tint, share in on_tint + in_box:
        under = over(channels(tint), share, ground)
        text = over(channels(ink), amount, under)
        low, high = sorted((relative(under), relative(text)))
        assert (high + 0.05) / (low + 0.05) >= 4.5, (ink, tint, share)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_series_can_be_told_apart_in_grey(run: Path, open_page: Open, scheme: str) -> None:
    page = open_page(page_of(run), color_scheme=scheme)
    for selector, part in ((".bar.first, .bar.second, .bar.third", "fill"), ("#curves .line", "stroke")):
        colours = page.locator(selector).evaluate_all(f"all => all.map(e => getComputedStyle(e).{part})")
        low, *rest = sorted(map(luminance, set(colours)))
        assert rest
        for high in rest:
            assert (high + 0.05) / (low + 0.05) > 1.4
            low = high


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_forced_colours_leave_the_figures_and_what_is_chosen(run: Path, open_page: Open, scheme: str) -> None:
    page = open_page(page_of(run), color_scheme=scheme, forced_colors="active")
    for cells in ("#flow-view table.heat tbody td", "#flow-view .numbers td"):
        colours = page.locator(cells).evaluate_all("all => all.map(e => getComputedStyle(e).backgroundColor)")
        assert len(set(colours)) > 5, cells
    keys = page.locator("#flow-view .key.block").evaluate_all(
        "all => all.map(e => getComputedStyle(e, '::before').backgroundColor)"
    )
    assert len(set(keys)) == 4
    for chosen in (".examples [aria-selected=true]", ".choices [aria-checked=true]", ".heat tr.lit button"):
        outline = page.locator(chosen).first.evaluate("e => getComputedStyle(e).outlineStyle")
        assert outline == "solid", chosen


def test_printing_and_reduced_motion(run: Path, open_page: Open) -> None:
    page = open_page(page_of(run), reduced_motion="reduce")
    assert page.evaluate("getComputedStyle(document.documentElement).scrollBehavior") == "auto"
    page.emulate_media(media="print")
    assert not page.locator(".contents").is_visible() and not page.locator("#graph .tools").is_visible()
    assert page.locator("#graph .canvas").is_visible()
    assert page.pdf(format="A4").startswith(b"%PDF")


def test_what_can_be_used_has_a_name(run: Path, open_page: Open) -> None:
    page = open_page(page_of(run))
    nameless = page.evaluate(
        """() => [...document.querySelectorAll('button, input, [role], [tabindex]')]
          .filter(e => !(e.getAttribute('aria-label') || e.textContent.trim() || e.labels?.length))
          .map(e => e.outerHTML.slice(0, 80))"""
    )
    assert nameless == []
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize(
    "damage",
    [
        {"predictions": [1], "flows": [{}], "graph": {}},
        {"predictions": {}, "flows": 3, "graph": {"boxes": 1}},
        {"predictions": [{"source": [1], "tokens": ["a"]}], "flows": [None], "graph": []},
    ],
    ids=["of nothing", "of other kinds", "in part"],
)
def test_parts_whose_data_are_damaged_say_so(
    damage: dict[str, Any], run: Path, tmp_path: Path, open_page: Open
) -> None:
    for name in ("config.json", "metrics.jsonl", "snapshots.jsonl"):
        (tmp_path / name).write_bytes((run / name).read_bytes())
    (tmp_path / "examples.json").write_text(json.dumps({**examples_of(run), **damage}))
    page = open_page(ta.viz.report(tmp_path))
    assert page.locator("#curves svg").count() == 4
    said = page.locator("#alignment-view .missing, #graph-view .missing").all_inner_texts()
    assert said and all("cannot be drawn" in text or "No " in text for text in said)
