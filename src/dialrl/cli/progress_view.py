"""Draws a stage's progress on stderr: a live bar with rate and time left on a terminal, sparse lines elsewhere."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from dialrl.cli.plain_text import clean
from dialrl.progress import SILENT, Progress

_SECONDS_BETWEEN_LINES = 15.0


@contextmanager
def drawn(*, quiet: bool) -> Iterator[Progress]:
    """A Progress for the length of a command."""
    if quiet:
        yield SILENT
    elif sys.stderr.isatty():
        bar = _Bar()
        try:
            yield bar
        finally:
            bar.close()
    else:
        yield _Lines()


class _Bar:
    """A rich progress bar, made when the first piece of work starts."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
        from rich.progress import TimeRemainingColumn as TimeLeft

        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[unit]}"),
            TextColumn("{task.fields[rate]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeLeft(),
            TextColumn("{task.fields[figures]}"),
            console=Console(stderr=True),
            transient=False,
        )
        self._task: TaskID | None = None
        self._began = time.monotonic()

    def start(self, task: str, total: int | None = None, unit: str = "") -> None:
        self._progress.start()
        self._began = time.monotonic()
        self._task = self._progress.add_task(task, total=total, unit=unit, rate="", figures="")

    def advance(self, amount: int = 1, **figures: float) -> None:
        if self._task is None:
            return
        done = self._progress.tasks[self._task].completed + amount
        rate = done / max(time.monotonic() - self._began, 1e-9)
        shown = "  ".join(f"{name} {value:.4g}" for name, value in figures.items())
        self._progress.update(self._task, advance=amount, rate=f"{rate:,.4g}/s", figures=shown)

    def message(self, text: str) -> None:
        from rich.text import Text

        self._progress.console.print(Text(clean(text)))

    def close(self) -> None:
        self._progress.stop()


class _Lines:
    """A line at the start of each piece of work and every few seconds: for logs."""

    def __init__(self) -> None:
        self._task, self._total, self._unit, self._done = "", None, "", 0  # type: str, int | None, str, int
        self._began = self._said = time.monotonic()

    def start(self, task: str, total: int | None = None, unit: str = "") -> None:
        self._task, self._total, self._unit, self._done = task, total, unit, 0
        self._began = self._said = time.monotonic()

    def advance(self, amount: int = 1, **figures: float) -> None:
        self._done += amount
        now = time.monotonic()
        if now - self._said < _SECONDS_BETWEEN_LINES:
            return
        self._said = now
        rate = self._done / max(now - self._began, 1e-9)
        left = "" if self._total is None else f", {(self._total - self._done) / max(rate, 1e-9):.0f} s left"
        total = "" if self._total is None else f"/{self._total}"
        self.message(f"{self._task}: {self._done}{total} {self._unit}, {rate:.4g}/s{left}")

    def message(self, text: str) -> None:
        sys.stderr.write(clean(text) + "\n")
        sys.stderr.flush()
