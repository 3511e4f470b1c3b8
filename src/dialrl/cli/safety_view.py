"""How ``dialrl evaluate safety`` looks in a terminal: the figures, then the failed dialogues, one paragraph each.

The worst reply of every other dialogue is for ``--json``. Text is data: never markup.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rich.text import Text

from dialrl.cli.plain_text import clean
from dialrl.cli.stdout import stdout_console
from dialrl.cli.summary_view import show_summary
from dialrl.summary import StageSummary

_APART = ("worst_reply", "failed_dialogues")


def show_safety(summary: StageSummary) -> None:
    """Print ``summary``."""
    figures = {name: value for name, value in summary.figures.items() if name not in _APART}
    failed: Mapping[str, Mapping[str, Any]] = summary.figures["failed_dialogues"]
    console = stdout_console()
    if failed:
        console.print(Text("failed dialogues, the worst first", style="bold"))
    for name, found in failed.items():
        console.print(Text(f"  {clean(name)}", style="cyan"), soft_wrap=True)
        said = f"    {found['crisis']}, turn {found['turn']}: {found['indicator']} {found['level']}"
        evidence = f', "{found["evidence"]}"' if found["evidence"] else ""
        console.print(Text(clean(said + evidence)), soft_wrap=True)
    show_summary(replace(summary, figures=figures))
