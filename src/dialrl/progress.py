"""How a stage reports that it is moving, without knowing who watches.

A stage gets a ``Progress`` and calls it; the command line passes one that draws on stderr with rate and time left, a
notebook or a test passes nothing. Not here: any drawing.
"""

from typing import Protocol


class Progress(Protocol):
    """Receives the state of one piece of work."""

    def start(self, task: str, total: int | None = None, unit: str = "") -> None:
        """A piece of work named ``task`` begins; ``total`` units are expected (None: unknown)."""

    def advance(self, amount: int = 1, **figures: float) -> None:
        """``amount`` more units are done; ``figures`` are shown beside the bar."""

    def message(self, text: str) -> None:
        """A line worth keeping on the screen."""


class Silent:
    """A Progress that shows nothing: the default of every stage function."""

    def start(self, task: str, total: int | None = None, unit: str = "") -> None:
        pass

    def advance(self, amount: int = 1, **figures: float) -> None:
        pass

    def message(self, text: str) -> None:
        pass


SILENT = Silent()
