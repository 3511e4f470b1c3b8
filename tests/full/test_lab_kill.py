"""A study that is killed leaves no process behind, and resumed says what the unbroken one says."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dialrl.evaluate.study_table import read_table

PLAN = Path(__file__).parents[2] / "pipelines" / "lab" / "small.yaml"


def study(folder: Path) -> list[str]:
    options = ["--config", str(PLAN), "-o", str(folder), "--quiet", "--resume", "--iterations", "25", "--groups", "8"]
    return [sys.executable, "-m", "dialrl", "lab", "study", *options]


def children(process: int) -> list[int]:
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process)], capture_output=True, text=True, check=False)
    return [int(line) for line in listed.stdout.split()]


def alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def wait_until(condition, seconds: float = 60.0) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until and not condition():
        time.sleep(0.1)
    return condition()


@pytest.mark.full
def test_a_killed_study_is_resumed_to_the_same_table(tmp_path: Path) -> None:
    runs = tmp_path / "killed" / "runs" / "short"
    with subprocess.Popen(study(tmp_path / "killed")) as broken:
        assert wait_until(lambda: len(list(runs.glob("*.json"))) >= 2)
        workers = children(broken.pid)
        broken.send_signal(signal.SIGKILL)
    assert len(workers) >= 2
    assert wait_until(lambda: not any(map(alive, workers)))
    kept = len(list(runs.glob("*.json")))
    assert 2 <= kept < 15
    subprocess.run(study(tmp_path / "killed"), check=True)
    subprocess.run(study(tmp_path / "whole"), check=True)
    one, other = (read_table(tmp_path / name / "lab.parquet").drop(["seconds"]) for name in ("killed", "whole"))
    assert one.equals(other)
