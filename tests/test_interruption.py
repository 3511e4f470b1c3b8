"""What SIGTERM and Ctrl-C leave on stderr when they come while many coroutines run."""

import signal
import subprocess
import sys

import pytest

PROGRAM = """
import asyncio, os, signal, sys
from dialrl.cli.failure import reported
from dialrl.concurrency import run_async

async def judgement(number):
    await asyncio.sleep(0.01)
    if number == 7:
        os.kill(os.getpid(), int(sys.argv[1]))  # heard inside this one task
    for _ in range(1000):
        await asyncio.sleep(0.01)

async def block():
    try:
        await asyncio.gather(*(judgement(number) for number in range(30)))
    finally:
        print("put away")

signal.signal(signal.SIGINT, signal.default_int_handler if sys.argv[2] == "heard" else signal.SIG_IGN)
with reported(debug=False):
    run_async(block())
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_interruption_puts_the_work_away_and_shows_no_traceback(number: signal.Signals) -> None:
    ended = interrupted(number, "heard")
    assert (ended.returncode, ended.stdout) == (130, "put away\n")
    first, last = ended.stderr.splitlines()
    assert first.startswith("Ending;")
    assert last.startswith("Interrupted.")


def test_a_background_job_that_ignores_ctrl_c_still_ends_well_when_told_to() -> None:
    ended = interrupted(signal.SIGTERM, "ignored")
    assert (ended.returncode, ended.stdout, len(ended.stderr.splitlines())) == (130, "put away\n", 2)


def interrupted(number: signal.Signals, ctrl_c: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", PROGRAM, str(int(number)), ctrl_c]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
