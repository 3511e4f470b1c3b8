"""kill -9 at random moments of a shortened demo, by the real command. Long; `make check-full` only."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from run_contents import assert_equal_runs, contents

PIPELINE = Path(__file__).parents[2] / "pipelines" / "demo.yaml"
SHORTENED = (
    "train.iterations=6", "train.evaluate_every=3", "train.save_every=2", "rollout.groups=6", "rollout.samples=4",
    "rollout.block_dialogues=8", "evaluate.groups=6", "evaluate.samples=1", "evaluate.block_dialogues=4",
)  # fmt: skip


def start(run: Path) -> "subprocess.Popen[bytes]":
    settings = [word for setting in SHORTENED for word in ("--set", setting)]
    command = [sys.executable, "-c", "from dialrl.cli import main; main()", "train", str(PIPELINE), "-o", str(run)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([*command, *settings, "--resume", "--quiet"], env=environment, stdout=subprocess.DEVNULL)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, object], float]:
    """The unbroken run's files, and the seconds it took."""
    run = tmp_path_factory.mktemp("unbroken") / "run"
    began = time.monotonic()
    assert start(run).wait() == 0
    return contents(run), time.monotonic() - began


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("moment", range(5))
def test_killed_at_a_random_moment_and_resumed_the_demo_ends_like_the_unbroken_one(
    moment: int, unbroken: tuple[dict[str, object], float], tmp_path: Path
) -> None:
    whole, seconds = unbroken
    process = start(tmp_path / "run")
    time.sleep(random.Random(moment).uniform(0.15, 0.95) * seconds)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert start(tmp_path / "run").wait() == 0
    assert_equal_runs(tmp_path / "run", whole)
