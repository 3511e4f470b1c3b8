"""The console that results are shown on: as wide as the terminal, and as wide as needed where there is none.

A pipe or a file has no width: nothing is cut or broken there, so that names and digests can be searched for.
"""

import os
import sys
from typing import Any

from rich.console import Console

_NO_LIMIT = 100_000


def stdout_console() -> Console:
    """A console for stdout. ``COLUMNS``, where it is set, says how wide."""
    if sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdecimal():
        return Console(highlight=False)
    return _Unlimited(highlight=False, width=_NO_LIMIT)


class _Unlimited(Console):
    """Prints lines at their own length, without the blanks that fill a line up to a width."""

    def print(self, *objects: Any, **options: Any) -> None:
        with self.capture() as captured:
            super().print(*objects, **options)
        self.file.write("".join(line.rstrip() + "\n" for line in captured.get().splitlines()))
