"""Runs commands in this process, as the entry point would: arguments in, exit code and both streams out."""

import json
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from dialrl.cli.app import main


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What --json printed: exactly one object, and nothing beside it."""
        assert self.code == 0, self.err
        found = json.loads(self.out)
        assert isinstance(found, dict)
        return found


Run = Callable[..., Ended]


@pytest.fixture
def run(capsys, monkeypatch) -> Iterator[Run]:
    """``run("returns", path, "-o", output)``; what the entry point changes in the process is put back."""
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setenv("PYDANTIC_DISABLE_PLUGINS", "__all__")
    handler, hook = signal.getsignal(signal.SIGTERM), sys.excepthook

    def run_command(*arguments: object) -> Ended:
        capsys.readouterr()
        code: object = 0
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as end:
            code = end.code
        said = capsys.readouterr()
        return Ended(code if isinstance(code, int) else 1 if code else 0, said.out, said.err)

    yield run_command
    signal.signal(signal.SIGTERM, handler)
    sys.excepthook = hook
