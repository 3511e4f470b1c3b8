"""Shows a stage's summary on stdout: figures, counts and warnings. Text is data: never markup.

Plain values are aligned lines; a mapping of mappings with the same keys is a table; any other nesting is indented.
"""

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dialrl.cli.plain_text import clean
from dialrl.cli.stdout import stdout_console
from dialrl.summary import StageSummary

_ROUNDING = 1e-15  # what is left of a sum that is 0, not a figure


def show_summary(summary: StageSummary) -> None:
    """Print ``summary``."""
    console = stdout_console()
    title = summary.stage if summary.output is None else f"{summary.stage} -> {summary.output}"
    console.print(Text(clean(title), style="bold"), soft_wrap=True)
    console.print(_indented(_view(summary.figures)))
    if summary.counts:
        console.print(_indented(_counts(summary.counts)))
    for warning in summary.warnings:
        console.print(Text("! " + clean(warning), style="yellow"), soft_wrap=True)


def _view(figures: Mapping[str, Any]) -> Group:
    """Runs of plain values as aligned lines, nested ones under their name."""
    parts: list[RenderableType] = []
    plain: dict[str, Any] = {}
    for name, value in figures.items():
        if isinstance(value, Mapping) and value:
            parts += [_lines(plain)] if plain else []
            plain = {}
            parts.append(Text(words(name), style="cyan"))
            parts.append(_indented(_table(value) if _is_table(value) else _view(value)))
        else:
            plain[name] = value
    return Group(*parts, *([_lines(plain)] if plain else []))


def _is_table(value: Mapping[str, Any]) -> bool:
    rows = list(value.values())
    if not all(isinstance(row, Mapping) for row in rows):
        return False
    plain = all(not isinstance(cell, (Mapping, list, tuple)) for row in rows for cell in row.values())
    return plain and len({tuple(row) for row in rows}) == 1


def _table(value: Mapping[str, Mapping[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("", overflow="fold")
    for name in next(iter(value.values())):
        table.add_column(words(name), justify="right", style="none", header_style="dim", overflow="fold")
    for name, row in value.items():
        table.add_row(Text(words(name)), *(Text(format_value(cell)) for cell in row.values()))
    return table


def _lines(values: Mapping[str, Any]) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="cyan")
    grid.add_column(overflow="fold")
    for name, value in values.items():
        grid.add_row(Text(words(name)), Text(format_value(value)))
    return grid


def _counts(counts: Mapping[str, int]) -> Text:
    return Text(", ".join(f"{count:,} {words(name)}" for name, count in counts.items()))


def _indented(view: RenderableType) -> Padding:
    return Padding(view, (0, 0, 0, 2))


def words(name: str) -> str:
    return clean(name.replace("_", " "))


def format_value(value: Any) -> str:
    """A value for people: four significant digits, lists joined."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return "0" if abs(value) < _ROUNDING else f"{value:.4g}"
    if isinstance(value, (list, tuple)):
        return ", ".join(format_value(item) for item in value) or "none"
    if isinstance(value, Mapping):
        return ", ".join(f"{words(name)} {format_value(item)}" for name, item in value.items()) or "none"
    return clean(str(value))
