"""A table of the laboratory as a summary for people and machines. Not here: the figures themselves."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dialrl.evaluate.statistics import Interval
from dialrl.evaluate.study_figures import Cell, Comparison, cells, comparisons, overall, reference_shares
from dialrl.evaluate.study_table import read_table
from dialrl.summary import StageSummary


def study_summary(
    path: Path, against: str, counts: Mapping[str, int], edges: Sequence[str] = (), *, stage: str = "lab study"
) -> StageSummary:
    """Figures by setting and preset, over all settings, and every preset against ``against``."""
    table = read_table(path)
    found = cells(table)
    tests = comparisons(found, against)
    settings = list(dict.fromkeys(cell.setting for cell in found))
    figures = {
        "reference": reference_shares(table),
        "settings": {s: {cell.preset: cell_figures(cell) for cell in found if cell.setting == s} for s in settings},
        "all_settings": {
            preset: {"final": mean, "final_interval": ends(interval)}
            for preset, (mean, interval) in overall(found).items()
        },
        "compared_with": against,
        "comparisons": {s: {t.preset: comparison_figures(t) for t in tests if t.setting == s} for s in settings},
    }
    warnings = [
        f"The chosen step size lies at the edge of those tried, so a better one may lie beyond: {', '.join(edges)}."
    ]
    return StageSummary(stage, path, counts, figures, tuple(warnings if edges else ()))


def cell_figures(cell: Cell) -> dict[str, Any]:
    """One line of the table presets x settings: interquartile means over seeds with 95 % intervals."""
    return {
        "final": cell.final,
        "final_interval": ends(cell.final_interval),
        "area": cell.area,
        "area_interval": ends(cell.area_interval),
        "worst": cell.worst,
        "collapses": cell.collapses,
        "stuck": cell.stuck,
        "gradient_norm": cell.gradient_norm,
        "step_size": cell.step_size,
        "seeds": len(cell.runs),
    }


def comparison_figures(made: Comparison) -> dict[str, Any]:
    """One line of the paired tests."""
    return {
        "difference": made.difference,
        "interval": ends(made.interval),
        "effect": made.effect,
        "p_holm": made.p,
        "pairs": made.pairs,
    }


def ends(interval: Interval) -> list[float]:
    """An interval as two numbers."""
    return [interval.low, interval.high]
