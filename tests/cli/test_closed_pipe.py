"""A reader that goes away (``| head``) ends a command quietly: no traceback, no word, no exit code of a fault."""

import os
import subprocess
import sys

import pytest

COMMANDS = {
    "a table": ("inspect", "--schema"),
    "lines": ("scenarios", "list", "--environment", "support"),
    "help": ("--help",),
    "plain text": ("rollout", "--dry-run"),
}


@pytest.mark.parametrize("arguments", COMMANDS.values(), ids=COMMANDS)
def test_a_command_whose_reader_left_ends_quietly(arguments):
    reading, writing = os.pipe()
    os.close(reading)  # nobody will read
    command = [sys.executable, "-c", "from dialrl.cli import main; main()", *arguments]
    ended = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, timeout=60, check=False)
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (141, b"")
