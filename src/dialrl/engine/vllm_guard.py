"""Runs a server and outlives nobody: ``python vllm_guard.py PARENT COMMAND...``, standard library alone.

The command runs in a process group of its own, so the terminal's Ctrl-C reaches the parent alone, which ends it in
order. The whole group is ended when this guard is told to (SIGTERM), when the parent is gone (even by kill -9), and
when the command itself ends and leaves children behind. Exit code: the command's. Not here: health checks, logs.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from types import FrameType

_LOOK_SECONDS = 0.2
_GRACE_SECONDS = 15.0


def run_guarded(parent: int, command: Sequence[str]) -> int:
    """Exit code of ``command``, negative for a signal."""
    told: list[int] = []

    def tell(number: int, frame: FrameType | None) -> None:
        told.append(number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, tell)
    child = subprocess.Popen(command, start_new_session=True)  # noqa: S603 - the command is the caller's own
    while child.poll() is None and not told and os.getppid() == parent:
        time.sleep(_LOOK_SECONDS)
    end_group(child)
    return child.returncode


def end_group(child: "subprocess.Popen[bytes]") -> None:
    """Ask the child's group to end, then make it."""
    _signal_group(child.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(_GRACE_SECONDS)
    _signal_group(child.pid, signal.SIGKILL)
    child.wait()


def _signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)


if __name__ == "__main__":
    code = run_guarded(int(sys.argv[1]), sys.argv[2:])
    sys.exit(code if code >= 0 else 128 - code)
