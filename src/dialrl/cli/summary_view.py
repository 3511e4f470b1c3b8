"""Shows a stage's summary on stdout: figures, counts and warnings as aligned lines. Text is data: never markup."""

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dialrl.summary import StageSummary


def show_summary(summary: StageSummary) -> None:
    """Print ``summary``."""
    console = Console(highlight=False)
    title = summary.stage if summary.output is None else f"{summary.stage} -> {summary.output}"
    console.print(Text(title, style="bold"), soft_wrap=True)
    grid = Table.grid(padding=(0, 2))
    for name, value in _lines(summary.figures):
        grid.add_row(Text("  " + name, style="cyan"), Text(value))
    for name, count in summary.counts.items():
        grid.add_row(Text("  " + name.replace("_", " "), style="cyan"), Text(f"{count:,}"))
    console.print(grid)
    for warning in summary.warnings:
        console.print(Text("! " + warning, style="yellow"), soft_wrap=True)


def _lines(figures: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, str]]:
    for name, value in figures.items():
        label = f"{prefix}{name.replace('_', ' ')}"
        if isinstance(value, Mapping):
            yield from _lines(value, prefix=f"{label} / ")
        else:
            yield label, format_value(value)


def format_value(value: Any) -> str:
    """A value for people: four significant digits, lists joined."""
    if value is None:
        return "not known"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, (list, tuple)):
        return ", ".join(format_value(item) for item in value)
    return str(value)
