"""How a study of the laboratory looks in a terminal: one table a setting, the mean over settings, paired tests."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from dialrl.cli.plain_text import clean
from dialrl.cli.stdout import stdout_console
from dialrl.summary import StageSummary

Figures = Mapping[str, Any]


def show_study(summary: StageSummary) -> None:
    """Print ``summary``."""
    console, figures = stdout_console(), summary.figures
    console.print(Text(clean(f"{summary.stage} -> {summary.output}"), style="bold"), soft_wrap=True)
    for setting, presets in figures["settings"].items():
        exact = figures["reference"][setting]
        console.print(Text(f"\n{setting}", style="cyan"), Text(f"myopic {exact['myopic']:.3f}, optimum 1", style="dim"))
        console.print(_cells(presets, figures["comparisons"].get(setting, {})))
    if len(figures["settings"]) > 1 and figures["all_settings"]:
        console.print(Text("\nall settings", style="cyan"))
        console.print(_table(("", "final share"), [[p, _mean(f, "final")] for p, f in figures["all_settings"].items()]))
    console.print(Text(_legend(figures["compared_with"]), style="dim"))
    counts = ", ".join(f"{number:,} {name.replace('_', ' ')}" for name, number in summary.counts.items())
    console.print(Text(counts))
    for warning in summary.warnings:
        console.print(Text("! " + clean(warning), style="yellow"), soft_wrap=True)


def _cells(presets: Mapping[str, Figures], tests: Mapping[str, Figures]) -> Table:
    headings = ("", "final share", "area", "worst", "coll.", "stuck", "|grad|", "step", "difference", "p")
    rows = [[preset, *_cell(cell), *_test(tests.get(preset))] for preset, cell in presets.items()]
    return _table(headings, rows)


def _cell(cell: Figures) -> list[str]:
    return [
        _mean(cell, "final"),
        f"{cell['area']:.3f}",
        f"{cell['worst']:.3f}",
        str(cell["collapses"]),
        str(cell["stuck"]),
        f"{cell['gradient_norm']:.3f}",
        f"{cell['step_size']:g}",
    ]


def _test(test: Figures | None) -> list[str]:
    return ["", ""] if test is None else [f"{test['difference']:+.3f}", f"{test['p_holm']:.3f}"]


def _mean(figures: Figures, name: str) -> str:
    low, high = figures[f"{name}_interval"]
    return f"{figures[name]:.3f} [{low:.3f}, {high:.3f}]"


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for heading in headings:
        table.add_column(heading, justify="right" if heading else "left")
    for row in rows:
        table.add_row(*row)
    return table


def _legend(against: str) -> str:
    return (
        "\nShare of the optimum: interquartile mean over seeds (95 % bootstrap). area: mean over training. coll.: runs"
        f" that end 0.2 below their best. stuck: at the myopic plateau. difference: from {against}, paired by seed,"
        " with its p (Holm)."
    )
