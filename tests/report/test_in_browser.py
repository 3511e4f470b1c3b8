"""The page as a reader meets it: opened in headless Chromium, where there is one."""

import pytest

from dialrl.report.stage import report
from report_pages import ATTACK, CHROMIUM, probe
from trajectory_files import judged, write

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: pages are not opened")

EXPECTED = {
    "curve", "update", "reward-by-turn", "length-by-turn", "degenerate", "advantage", "advantage-by-turn",
    "rollout-flags", "judge-counts", "judge", "tokens", "seconds", "throughput", "usage",
}  # fmt: skip
CHARTS = """
  const charts = {};
  for (const [id, view] of views) {
    const marks = document.querySelectorAll(`#plot-${id} svg .role-mark path, #plot-${id} svg .role-mark line`);
    const data = view.data("rows");
    charts[id] = { rows: data.length, marks: [...marks].filter((mark) => mark.getAttribute("d") !== "").length };
  }
  const dashed = all("#plot-curve text");
  const sources = [...document.querySelectorAll("[src], link[href]")].length;
  return { charts, dashed, sources, overflow: document.documentElement.scrollWidth - window.innerWidth };
"""


@pytest.fixture(scope="module")
def charts(run_page, tmp_path_factory):
    return probe(run_page, CHARTS, tmp_path_factory.mktemp("charts"))


def test_every_chart_has_its_data_and_draws_it(charts):
    assert charts["problems"] == []
    assert set(charts["charts"]) >= EXPECTED
    empty = {name: found for name, found in charts["charts"].items() if not found["rows"] or not found["marks"]}
    assert empty == {}


def test_the_myopic_and_the_optimum_line_are_in_the_learning_curve(charts):
    assert {"myopic", "optimum"} <= set(charts["dashed"])


def test_nothing_is_loaded_from_elsewhere(charts):
    assert charts["sources"] == 0
    assert charts["overflow"] <= 0


DIALOGUES = """
  const rows = count(".row"), first = read("#dialogue h3"), replies = count("#dialogue .reply");
  const tints = [...document.querySelectorAll("#dialogue .reply .text")].map((text) => text.style.background);
  const facts = read("#dialogue .facts");
  await press("j");
  const second = read("#dialogue h3");
  await press("ArrowUp");
  const back = read("#dialogue h3");
  await press("t");
  const trained = count("#dialogue .token.trained"), context = count("#dialogue .token.context");
  await press("ArrowRight");
  const other = byId("set").value;
  await press("/");
  const searching = document.activeElement.id;
  const dark = isDark();
  await press("d");
  byId("search").value = "no such words at all";
  await refreshList();
  return { rows, first, replies, tinted: tints.filter(Boolean).length, facts, second, back, trained, context, other,
           searching, changed: dark !== isDark(), path: state.path.length, none: count(".row"),
           said: read("#dialogue") };
"""


def test_a_dialogue_opens_and_the_keys_move_through_it(run_page, tmp_path):
    found = probe(run_page, DIALOGUES, tmp_path, view="dialogues")
    assert found["problems"] == []
    assert (found["rows"], found["replies"]) == (6, 3)
    assert found["first"].endswith("/0")
    assert (found["second"], found["back"]) == (found["first"][:-1] + "1", found["first"])
    assert all(name in found["facts"] for name in ("reward", "return", "advantage", "state"))
    assert found["tinted"] == 3
    assert found["trained"] > 3
    assert found["context"] > 3
    assert found["path"] == 2  # the axes by turn, and the path in the plane
    assert found["searching"] == "search"
    assert found["changed"]
    assert (found["none"], found["said"]) == (0, "No dialogue is like that.")


SEARCH = """
  const box = byId("search"), typed = (key) => onKey({ key, target: box, preventDefault() {} });
  const before = count(".row"), last = [...document.querySelectorAll(".row span")].at(-2).textContent;
  await press("/");
  box.value = last;
  box.dispatchEvent(new Event("input"));
  await refreshList();
  const kept = count(".row");
  await typed("Enter");
  const stayed = [box.value, count(".row"), document.activeElement.id];
  await press("/");
  await typed("Escape");
  return { before, last, kept, stayed, after: [box.value, count(".row"), document.activeElement.id] };
"""


def test_escape_takes_the_search_back_and_enter_keeps_it(run_page, tmp_path):
    found = probe(run_page, SEARCH, tmp_path, view="dialogues")
    assert found["problems"] == []
    assert (found["before"], found["kept"]) == (6, 1)
    assert found["stayed"] == [found["last"], 1, ""]
    assert found["after"] == ["", 6, ""]


SIDES = """
  return { left: read("#side-left h3"), right: read("#side-right h3"), pairs: count("#pair option"),
           replies: count("#side-left .reply") + count("#side-right .reply"),
           overflow: document.documentElement.scrollWidth - window.innerWidth };
"""


@pytest.mark.parametrize("width", [1400, 500])
def test_before_and_after_stand_side_by_side_on_wide_and_narrow_screens(run_page, tmp_path, width):
    found = probe(run_page, SIDES, tmp_path, view="sides", width=width)
    assert found["problems"] == []
    assert (found["left"], found["right"], found["pairs"]) == ("before training", "after 2 iterations", 2)
    assert found["replies"] >= 4
    assert found["overflow"] <= 0


HOSTILE = """
  const texts = all("#dialogue .text");
  await press("j");
  return { texts, hacked: window.hacked ?? null, images: count("img"), list: read(".row"),
           evidence: read("#dialogue .evidence"), flags: all("#dialogue .flag") };
"""


def test_markup_in_a_model_s_or_judge_s_words_is_text(hostile_file, tmp_path):
    page = tmp_path / "report.html"
    report([hostile_file], page)
    found = probe(page, HOSTILE, tmp_path, view="dialogues")
    assert (found["hacked"], found["images"], found["problems"]) == (None, 0, [])
    assert found["texts"].count(ATTACK) == 6  # message, thinking and reply of both turns
    assert ATTACK in found["evidence"]
    assert any(ATTACK in flag for flag in found["flags"])
    assert found["list"].startswith("g<b>/0")
    charts = probe(page, "return { hacked: window.hacked ?? null, images: count('img') };", tmp_path)
    assert (charts["hacked"], charts["images"], charts["problems"]) == (None, 0, [])


MANY = """
  const before = count(".row");
  byId("list").scrollTop = 5000 * ROW;
  drawRows();
  await choose(4999);
  return { before, after: count(".row"), last: read("#dialogue h3"), found: state.found.length };
"""


def test_five_thousand_dialogues_are_listed_without_drawing_them_all(tmp_path):
    path = [-8.0, -7.0]
    write(tmp_path / "many.parquet", judged({f"g{group:03}": [path] * 50 for group in range(100)}), "rollout", "judge")
    page = tmp_path / "report.html"
    summary = report([tmp_path / "many.parquet"], page)
    assert summary.counts["dialogues"] == 5000
    found = probe(page, MANY, tmp_path, view="dialogues")
    assert found["problems"] == []
    assert 0 < found["before"] < 60
    assert 0 < found["after"] < 60
    assert (found["found"], found["last"]) == (5000, "g099/49")
