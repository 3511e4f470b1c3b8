"""The tables on the pages of the presets are what the presets compute."""

from itertools import groupby
from pathlib import Path

import pytest
from tests.advantage.test_golden_tables import igpo_rows

from credit_files import GOLDEN, advantage_of, credit, flat, returns_of, write
from dialrl.advantage.presets import known_presets

PAGES = Path(__file__).parents[2] / "docs" / "presets"


BY_GAINS = ("igpo", "a2tgpo", "itpo")


def tables(preset: str) -> list[list[list[str]]]:
    """The cells of each of the page's tables, without their heads."""
    lines = (PAGES / f"{preset}.md").read_text(encoding="utf-8").splitlines()
    runs = [list(rows) for is_table, rows in groupby(lines, lambda line: line.startswith("|")) if is_table]
    return [[[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]] for rows in runs]


def numbers(cell: str) -> list[float]:
    return [float(number) for number in cell.split(",")]


def test_every_preset_has_a_page() -> None:
    assert {path.stem for path in PAGES.glob("*.md")} == set(known_presets())


@pytest.mark.parametrize("preset", [name for name in known_presets() if name not in BY_GAINS])
def test_the_table_of_a_page_is_what_the_preset_computes(tmp_path: Path, preset: str) -> None:
    rows = tables(preset)[0]
    assert [numbers(row[1]) for row in rows] == [list(rewards) for group in GOLDEN.values() for rewards in group]
    printed = [value for row in rows for value in numbers(row[3])]
    assert printed == pytest.approx(flat(credit(tmp_path, GOLDEN, preset=preset, gamma=0.85)), abs=5.1e-5)


def test_the_table_of_igpo_is_what_it_computes(tmp_path: Path) -> None:
    returned, _ = returns_of(
        write(tmp_path / "turns.parquet", igpo_rows(end_reason="answer")),
        reward=("information-gain", "outcome", "format"),
    )
    for mode, *cells in tables("igpo")[0]:
        got, _ = advantage_of(returned, preset="igpo", joint="joint" in mode, gamma=float(mode.split()[-1]))
        printed = [value for cell in cells for value in numbers(cell)]
        assert printed == pytest.approx([row["advantage"] for row in got], abs=5.1e-5), mode


@pytest.mark.parametrize(("preset", "place"), [("a2tgpo", 0), ("mt-grpo", 1)])
def test_the_table_of_gains_and_outcomes_is_what_the_preset_computes(tmp_path: Path, preset: str, place: int) -> None:
    returned, _ = returns_of(
        write(tmp_path / "turns.parquet", igpo_rows(end_reason="answer")),
        reward=("information-gain", "outcome", "format"),
    )
    got, _ = advantage_of(returned, preset=preset)
    ((_, *cells),) = tables(preset)[place]
    printed = [value for cell in cells for value in numbers(cell)]
    assert printed == pytest.approx([row["advantage"] for row in got], abs=5.1e-5)
