"""A table of the laboratory as a summary for people and machines. Not here: the figures themselves."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dialrl.evaluate.statistics import Interval
from dialrl.evaluate.study_figures import Cell, Comparison, cells, comparisons, overall
from dialrl.evaluate.study_table import read_table
from dialrl.summary import StageSummary


def study_summary(
    path: Path, against: str, counts: Mapping[str, int], edges: Sequence[str] = (), *, stage: str = "lab study"
) -> StageSummary:
    """Figures by setting and preset, over all settings, and every preset against ``against``."""
    found = cells(read_table(path))
    figures: dict[str, Any] = {
        setting: {cell.preset: cell_figures(cell) for cell in found if cell.setting == setting}
        for setting in dict.fromkeys(cell.setting for cell in found)
    }
    figures["all settings"] = {
        preset: {"final": round(mean, 4), "interval": spelled(interval)}
        for preset, (mean, interval) in overall(found).items()
    }
    figures |= {
        f"{setting}: final share minus that of {against}": {
            each.preset: comparison_figures(each) for each in made if each.setting == setting
        }
        for made in [comparisons(found, against)]
        for setting in dict.fromkeys(each.setting for each in made)
    }
    warnings = [
        f"The chosen step size lies at the edge of those tried, so a better one may lie beyond: {', '.join(edges)}."
    ]
    return StageSummary(stage, path, counts, figures, tuple(warnings if edges else ()))


def cell_figures(cell: Cell) -> dict[str, float | int | str]:
    """One line of the table presets x settings."""
    return {
        "final": round(cell.final, 4),
        "interval": spelled(cell.final_interval),
        "area": round(cell.area, 4),
        "area_interval": spelled(cell.area_interval),
        "worst": round(cell.worst, 4),
        "collapses": cell.collapses,
        "stuck": cell.stuck,
        "gradient_norm": round(cell.gradient_norm, 5),
        "step_size": cell.step_size,
        "seeds": len(cell.runs),
    }


def comparison_figures(made: Comparison) -> dict[str, float | int | str | None]:
    """One line of the paired tests."""
    return {
        "difference": round(made.difference, 4),
        "interval": spelled(made.interval),
        "effect": None if made.effect is None else round(made.effect, 2),
        "p_holm": round(made.p, 4),
        "pairs": made.pairs,
    }


def spelled(interval: Interval) -> str:
    """``0.701 to 0.733``."""
    return f"{interval.low:.3f} to {interval.high:.3f}"
