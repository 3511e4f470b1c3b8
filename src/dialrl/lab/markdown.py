"""The tables of a study as Markdown, for a page: presets x settings. The same figures as the summary's."""

from collections.abc import Callable, Sequence
from pathlib import Path

from dialrl.evaluate.statistics import Interval
from dialrl.evaluate.study_figures import Cell, cells, comparisons, overall, reference_shares
from dialrl.evaluate.study_table import read_table
from dialrl.trajectory.atomic import write_text

FILE = "table.md"


def write_markdown(table: Path, against: str) -> None:
    """Write ``table.md`` beside the study's table."""
    write_text(table.with_name(FILE), study_markdown(table, against))


def study_markdown(path: Path, against: str) -> str:
    """Exact values, final share, area, paired differences, and what else was measured, a table each."""
    table = read_table(path)
    found = cells(table)
    settings = list(dict.fromkeys(cell.setting for cell in found))
    exact = reference_shares(table)
    names = ("myopic", "optimum", "clairvoyant")
    parts = [
        _titled("Exact shares of each world", ["planner", *settings], [
            [name, *(f"{exact[setting][name]:.3f}" for setting in settings)] for name in names
        ]),
        _titled("Final share of the optimum", *_final(found, settings)),
        _titled("Area under the learning curve", *_by_setting(found, settings, _area)),
        _titled(f"Final share minus that of {against}, and p (Holm)", *_differences(found, settings, against)),
        _titled("Worst seed", *_by_setting(found, settings, lambda cell: f"{cell.worst:.3f}")),
        _titled("Collapses / stuck", *_by_setting(found, settings, lambda cell: f"{cell.collapses} / {cell.stuck}")),
        _titled("Mean gradient norm", *_by_setting(found, settings, lambda cell: f"{cell.gradient_norm:.4f}")),
        _titled("Step size", *_by_setting(found, settings, lambda cell: f"{cell.step_size:g}")),
    ]  # fmt: skip
    return "\n".join(parts)


def _area(cell: Cell) -> str:
    return _spelled(cell.area, cell.area_interval)


def _final(found: Sequence[Cell], settings: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    head, rows = _by_setting(found, settings, lambda cell: _spelled(cell.final, cell.final_interval))
    if len(settings) == 1:
        return head, rows
    means = overall(found)
    spelled = {preset: _spelled(mean, interval) for preset, (mean, interval) in means.items()}
    return [*head, "all"], [[*row, spelled.get(row[0], "")] for row in rows]


def _differences(found: Sequence[Cell], settings: Sequence[str], against: str) -> tuple[list[str], list[list[str]]]:
    tests = comparisons(found, against)
    made = {(test.preset, test.setting): f"{test.difference:+.3f} ({test.p:.4f})" for test in tests}
    presets = dict.fromkeys(preset for preset, _ in made)
    return ["preset", *settings], [[p, *(made.get((p, setting), "") for setting in settings)] for p in presets]


def _by_setting(
    found: Sequence[Cell], settings: Sequence[str], shown: Callable[[Cell], str]
) -> tuple[list[str], list[list[str]]]:
    by_place = {(cell.preset, cell.setting): shown(cell) for cell in found}
    presets = dict.fromkeys(cell.preset for cell in found)
    return ["preset", *settings], [[p, *(by_place.get((p, setting), "") for setting in settings)] for p in presets]


def _titled(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    named = [[f"`{row[0]}`", *row[1:]] for row in rows]
    lines = [f"### {title}", "", *(f"| {' | '.join(cells)} |" for cells in [head, ["---"] * len(head), *named])]
    return "\n".join(lines) + "\n"


def _spelled(value: float, interval: Interval) -> str:
    return f"{value:.3f} [{interval.low:.3f}, {interval.high:.3f}]"
