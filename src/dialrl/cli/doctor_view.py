"""Shows what the doctor found: a line a check under its area, what to do below it, trained tokens in brackets."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dialrl.cli.plain_text import clean
from dialrl.cli.stdout import stdout_console
from dialrl.doctor.check import Check, Diagnosis, Status

_MARKS: dict[Status, tuple[str, str]] = {
    "ok": ("ok", "green"),
    "warning": ("!", "yellow"),
    "failed": ("FAIL", "bold red"),
    "not applicable": ("-", "dim"),
}
_TRAINED, _CONTEXT = "bold green", "dim"
_NAME_WIDTH = 13


def show_diagnosis(diagnosis: Diagnosis) -> None:
    """Print every check, then how many of each kind."""
    console = stdout_console()
    for area, checks in groupby(diagnosis.checks, key=lambda check: check.area):
        console.print(Text(area, style="bold"))
        for check in checks:
            console.print(Padding(_line(check), (0, 0, 0, 2)))
            if "spans" in check.details:
                _show_spans(console, check.details["spans"])
    console.print(_ending(diagnosis))


def _line(check: Check) -> Table:
    mark, style = _MARKS[check.status]
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(width=4)
    grid.add_column(width=_NAME_WIDTH, overflow="fold")
    grid.add_column(overflow="fold")
    found = Text(clean(check.found), style="dim" if check.status == "not applicable" else "")
    if check.advice and check.status != "ok":
        found.append("\n" + clean(check.advice), style="cyan" if check.status != "not applicable" else "dim cyan")
    grid.add_row(
        Text(mark, style=style), Text(clean(check.name), style=style if check.status == "failed" else ""), found
    )
    return grid


def _show_spans(console: Console, spans: Sequence[Mapping[str, Any]]) -> None:
    """The dialogue as it is trained. Control tokens are text here: data, escaped, with line breaks shown."""
    for segment, parts in groupby(spans, key=lambda span: span["segment"]):
        text = Text()
        for span in parts:
            shown = clean(str(span["text"])).replace("\n", "\u21b5\n")
            text.append(f"[{shown}]" if span["trained"] else shown, style=_TRAINED if span["trained"] else _CONTEXT)
        title = Text.assemble(
            (f"segment {segment}: ", ""), ("[trained]", _TRAINED), (" and ", ""), ("context", _CONTEXT)
        )
        console.print(Padding(title, (0, 0, 0, 7)))
        console.print(Padding(text, (0, 0, 0, 9)))


def _ending(diagnosis: Diagnosis) -> Text:
    counts = diagnosis.counts
    said = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
    if diagnosis.failed:
        names = ", ".join(f"{check.area.lower()}: {check.name}" for check in diagnosis.failed)
        return Text.assemble((f"Not ready ({clean(names)}). ", "bold red"), said)
    return Text.assemble(("Nothing that is needed fails. ", "bold green"), said)
