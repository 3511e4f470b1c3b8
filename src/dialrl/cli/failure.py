"""How a command ends when it does not end well: one clear sentence on stderr and the right exit code.

0 done, 1 failed or over the failure threshold, 2 wrong usage or input, 130 interrupted, 141 when the reader of the
output went away (``dialrl inspect ... | head``). A traceback is shown with ``--debug`` only. Not here: the sentences;
they are the errors' own.
"""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from dialrl.cli.plain_text import clean
from dialrl.errors import DialrlError
from dialrl.trajectory.atomic import disk_advice

INTERRUPTED, READER_LEFT = 130, 141  # 128 + the number of the signal, as a shell reports it
_STDOUT, _STDERR = 1, 2


@contextmanager
def reported(*, debug: bool) -> Iterator[None]:
    """Run a command; errors become a sentence and an exit code."""
    signal.signal(signal.SIGTERM, _interrupt)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # one that is ignored stays so (nohup)
        signal.signal(signal.SIGINT, _interrupt)
    try:
        with _interruption_told(), _reader_may_leave():
            yield
    except DialrlError as error:
        if debug:
            raise
        say(f"Error: {error}")
        sys.exit(error.exit_code)
    except OSError as error:
        if debug:
            raise
        sentence = f"Error: {error.strerror or error}: {error.filename or ''}".rstrip(": ")
        advice = disk_advice(error.errno)
        say(f"{sentence}. {advice}" if advice else sentence)
        sys.exit(1)
    except Exception as error:
        if debug:
            raise
        say(
            f"Internal error: {type(error).__name__}: {error}. This is a fault of dialrl, not of your input;"
            " run the same command with --debug for the traceback to report."
        )
        sys.exit(1)


@contextmanager
def _interruption_told() -> Iterator[None]:
    """Say what an interruption leaves behind; typer has made an exit of it where it happened inside a command."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit) as end:
        if isinstance(end, SystemExit) and end.code != INTERRUPTED:
            raise
        say("Interrupted. Outputs appear only when complete; what a command kept is continued with --resume.")
        sys.exit(INTERRUPTED)


@contextmanager
def _reader_may_leave() -> Iterator[None]:
    """End quietly when nobody reads stdout any more: typer and rich make an exit with 1 of that, we say it as it is."""
    try:
        yield
        sys.stdout.flush()
    except (BrokenPipeError, SystemExit) as end:
        if not _is_closed_pipe(end):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), _STDOUT)  # what is still held back has somewhere to go
        sys.exit(READER_LEFT)


def _is_closed_pipe(end: BaseException | None) -> bool:
    """Whether ``end``, or what it was raised because of, is a pipe that was closed at the other end."""
    while end is not None and not isinstance(end, BrokenPipeError):
        end = end.__context__ if isinstance(end, SystemExit) else None
    return end is not None


def say(text: str) -> None:
    """Print a line on stderr, whatever characters it holds."""
    sys.stderr.write(clean(text) + "\n")
    sys.stderr.flush()


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Say that it was heard, since ending may take a while. Written past the buffer, which may be in use just now."""
    with suppress(OSError):
        os.write(_STDERR, b"Ending; once more ends at once.\n")
    raise KeyboardInterrupt
