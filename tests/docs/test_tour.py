"""The tour is walked: its commands run in order, and each printed block is what the command before it printed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs.test_docs import FENCE, ROOT, shell_lines

PAGE = ROOT / "docs/tour.md"
# What comes after the sixty iterations of a whole run is checked by parsing (test_docs.py), not by running.
NOT_WALKED = ("train", "report")


def steps() -> list[tuple[list[list[str]], str]]:
    """Commands of each shell block, with the printed block that follows it ("" where none does)."""
    found: list[tuple[list[list[str]], str]] = []
    for language, text in FENCE.findall(PAGE.read_text(encoding="utf-8")):
        if language == "sh":
            found.append((list(shell_lines(text)), ""))
        elif language == "text":
            found[-1] = (found[-1][0], text)
    return found


def run(words: list[str], folder: Path) -> str:
    wide = {name: value for name, value in os.environ.items() if name != "COLUMNS"} | {"NO_COLOR": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "dialrl", *words], cwd=folder, env=wide, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"dialrl {' '.join(words)}: {done.stderr}"
    return done.stdout


def printed_in_order(block: str, output: str) -> list[str]:
    """Lines of ``block`` that ``output`` does not hold, each looked for after the one before it; "..." skips any."""
    rest, missing = [line.rstrip() for line in output.splitlines()], []
    for line in (line.rstrip() for line in block.splitlines() if line.strip() != "..."):
        if line in rest:
            rest = rest[rest.index(line) + 1 :]
        else:
            missing.append(line)
    return missing


@pytest.mark.timeout(300)
def test_the_tour_can_be_walked_and_shows_what_it_says(tmp_path: Path) -> None:
    (tmp_path / "pipelines").symlink_to(ROOT / "pipelines")
    walked = 0
    for commands, block in steps():
        if commands[0][0] in NOT_WALKED:
            continue
        output = [run(words, tmp_path) for words in commands][-1]
        assert printed_in_order(block, output) == []
        walked += bool(block)
    assert walked == 6
