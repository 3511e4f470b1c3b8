"""How a command ends when it does not end well: one clear sentence on stderr and the right exit code.

0 done, 1 failed or over the failure threshold, 2 wrong usage or input, 130 interrupted. A traceback is shown with
``--debug`` only. Not here: the sentences; they are the errors' own.
"""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType

from dialrl.errors import DialrlError

INTERRUPTED = 130


@contextmanager
def reported(*, debug: bool) -> Iterator[None]:
    """Run a command; errors become a sentence and an exit code."""
    signal.signal(signal.SIGTERM, _interrupt)
    if not debug:
        sys.excepthook = _unexpected
    try:
        yield
    except DialrlError as error:
        if debug:
            raise
        say(f"Error: {error}")
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        say("Interrupted. Outputs appear only when complete; what a command kept is continued with --resume.")
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        # The reader of stdout went away (``dialrl inspect ... | head``): no error of ours.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        if debug:
            raise
        say(f"Error: {error.strerror or error}: {error.filename or ''}".rstrip(": "))
        sys.exit(1)


def say(text: str) -> None:
    """Print a line on stderr, whatever characters it holds."""
    sys.stderr.buffer.write((text + "\n").encode("utf-8", "backslashreplace"))
    sys.stderr.flush()


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _unexpected(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    say(
        f"Internal error: {kind.__name__}: {error}. This is a fault of dialrl, not of your input;"
        " run the same command with --debug for the traceback to report."
    )
