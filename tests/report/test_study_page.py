"""A study of credit rules on the page: curves with exact lines, final shares, tables; opened in a real browser."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dialrl.errors import InputError
from dialrl.evaluate.study_table import SCHEMA
from dialrl.report.stage import report
from dialrl.report.study import Study, study_at
from dialrl.report.study_charts import study_charts, study_tables
from report_pages import ATTACK, CHROMIUM, probe

SETTINGS, PRESETS = ("standard", ATTACK), ("mica", "grpo", "rloo")


def study_table() -> pa.Table:
    """Two settings x three presets x two seeds x two evaluations; myopic 0.25, optimum 1."""
    rows: list[dict[str, Any]] = [
        {
            "tier": "fast", "phase": "final", "setting": setting, "preset": preset, "step_size": 4.0, "seed": seed,
            "silent": 0.0, "myopic": 2.5, "optimum": 10.0, "clairvoyant": 11.0, "iteration": iteration,
            "share": 0.1 * iteration * (1 + rank) + 0.01 * seed, "gradient_norm": 0.5 if iteration else None,
        }
        for setting in SETTINGS
        for rank, preset in enumerate(PRESETS)
        for seed in (0, 1)
        for iteration in (0, 2)
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, schema=SCHEMA)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("study")
    pq.write_table(study_table(), folder / "lab.parquet")
    report([folder], folder / "page.html")
    return folder / "page.html"


def test_every_chart_has_its_presets_and_the_exact_lines() -> None:
    charts = study_charts([Study("lab", study_table())])
    assert len(charts) == 2 * len(SETTINGS)
    for chart in charts:
        assert {row["preset"] for row in chart.spec["data"]["values"]} == set(PRESETS)
        lines = [
            row["value"]
            for layer in chart.spec["layer"]
            for row in layer.get("data", {}).get("values", [])
            if "line" in row
        ]
        assert {0.25, 1.0} <= set(lines)


def test_curves_carry_their_intervals() -> None:
    (chart,) = [c for c in study_charts([Study("lab", study_table())]) if c.identifier == "study-curve-standard"]
    last = next(row for row in chart.spec["data"]["values"] if (row["preset"], row["iteration"]) == ("grpo", 2))
    assert last["share"] == pytest.approx(0.405)
    assert last["low"] <= last["share"] <= last["high"]


def test_the_table_says_what_was_measured() -> None:
    standard, _, together = study_tables([Study("lab", study_table())])
    assert [row[0] for row in standard["rows"]] == list(PRESETS)
    grpo = dict(zip(standard["columns"], standard["rows"][1], strict=True))
    assert grpo["final share"].startswith("0.405 [0.400, ")
    assert (grpo["worst seed"], grpo["collapses"], grpo["seeds"], grpo["minus mica"]) == ("0.400", "0", "2", "+0.200")
    assert standard["rows"][0][-2:] == ["", ""]
    assert [row[0] for row in together["rows"]] == list(PRESETS)


def test_a_study_is_found_in_its_folder_and_as_a_file(page: Path) -> None:
    by_folder, by_file = (study_at(path, "lab") for path in (page.parent, page.parent / "lab.parquet"))
    assert by_folder is not None and by_file is not None
    assert by_folder.table.equals(by_file.table)
    assert study_at(page, "page") is None


def test_a_table_of_another_version_says_what_it_lacks(tmp_path: Path) -> None:
    pq.write_table(study_table().drop(["share"]), tmp_path / "lab.parquet")
    with pytest.raises(InputError, match="lacks the columns share"):
        report([tmp_path], tmp_path / "page.html")


@pytest.mark.skipif(CHROMIUM is None, reason="no browser")
def test_the_page_draws_in_a_browser_and_text_stays_text(page: Path, tmp_path: Path) -> None:
    found = probe(
        page,
        """
        await press("2"); await press("/");
        const drawn = content.charts.map((chart) => byId(`plot-${chart.id}`).querySelectorAll("svg path").length);
        return { drawn, tables: count("figure.table tbody tr"), cells: all("figure.table th[scope=row]"),
                 hidden: [...document.querySelectorAll("nav button")].map((tab) => tab.hidden),
                 view: state.view, hacked: window.hacked ?? null, headings: all("h2") };
        """,
        tmp_path,
    )
    assert found["problems"] == []
    assert len(found["drawn"]) == 4 and min(found["drawn"]) > 5
    assert found["tables"] == 3 * len(PRESETS)
    assert (found["hidden"], found["view"], found["hacked"]) == ([False, True, True], "charts", None)
    assert any(ATTACK.replace("\u2028", "") in heading.replace("\u2028", "") for heading in found["headings"])
    assert json.dumps(ATTACK)[1:-1] not in page.read_text(encoding="utf-8")
