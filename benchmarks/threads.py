"""One update of the demo's policy on one thread and on more: seconds, and whether the weights are the same to the bit.

    python benchmarks/threads.py [--threads 1 2 3 4] [--repeats 3] [-o benchmarks/results/threads.json]

128 dialogues of the demo's base policy, credited with `mica`, trained as `pipelines/demo.yaml` trains them (two epochs,
eight steps). Numbers of threads take turns, so that a busy machine slows all of them; seconds are the best of the
repeats. Threads beyond the machine's cores tell about bits, not about speed.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from result_file import show

from dialrl.advantage.stage import compute_advantages
from dialrl.cli.app import SPIN_COUNT
from dialrl.judge.files import judge_files
from dialrl.model.find import find_policy
from dialrl.resources import resource
from dialrl.returns.stage import compute_returns
from dialrl.rollout.policy import open_policy
from dialrl.rollout.stage import roll_out
from dialrl.train.config import PipelineConfig, read_pipeline
from dialrl.update.trainer import Trainer


def demo() -> PipelineConfig:
    return read_pipeline(resource("demo.yaml", kind="pipelines"), {})


def credited_file(pipeline: PipelineConfig, folder: Path) -> Path:
    """The first iteration's advantage file."""
    rollout, judge, returns, advantage = (folder / f"{name}.parquet" for name in ("r", "j", "g", "a"))
    policy = open_policy(find_policy(pipeline.policy))
    roll_out(policy, rollout, pipeline.rollout)
    policy.engine.close()
    judge_files(rollout, judge, pipeline.judge)
    compute_returns(judge, returns, pipeline.returns)
    compute_advantages(returns, advantage, pipeline.advantage)
    return advantage


def in_a_process(file: Path, threads: int) -> tuple[float, str]:
    """``update`` in a process that was given so many threads."""
    command = [sys.executable, __file__, "--once", str(file), "--threads", str(threads)]
    done = subprocess.run(
        command,
        env={**os.environ, "OMP_NUM_THREADS": str(threads), "GOMP_SPINCOUNT": SPIN_COUNT},
        capture_output=True,
        check=True,
    )
    seconds, bits = json.loads(done.stdout)
    return float(seconds), str(bits)


def update(file: Path, threads: int) -> tuple[float, str]:
    """Seconds of one update, and a digest of the weights after it."""
    pipeline = demo()
    trainer = Trainer.open(find_policy(pipeline.policy), pipeline.update, pipeline.train.iterations)
    torch.set_num_threads(threads)  # more than training would take of itself, too
    began = time.perf_counter()
    trainer.step_file(file)
    seconds = time.perf_counter() - began
    digest = hashlib.sha256()
    for weights in trainer.learner.model.parameters():
        digest.update(weights.detach().numpy().tobytes())
    return seconds, digest.hexdigest()


def measure(threads: Sequence[int], repeats: int) -> list[dict[str, object]]:
    pipeline = demo()
    found: dict[int, list[tuple[float, str]]] = {number: [] for number in (1, *threads)}
    with tempfile.TemporaryDirectory() as folder:
        file = credited_file(pipeline, Path(folder))
        for _ in range(repeats):
            for number, results in found.items():
                results.append(in_a_process(file, number))
    bits, best = found[1][0][1], {number: min(results)[0] for number, results in found.items()}
    return [
        {
            "threads": number,
            "seconds": round(best[number], 3),
            "times_one_thread": round(best[1] / best[number], 2),
            "same_bits_as_one_thread": all(digest == bits for _, digest in results),
        }
        for number, results in found.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2, 3, 4])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--once", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    if arguments.once is not None:
        print(json.dumps(update(arguments.once, *arguments.threads)))
        return
    rows = measure(arguments.threads, arguments.repeats)
    result = {"cores": os.cpu_count(), "torch": torch.__version__, "rows": rows}
    show(result, arguments.output)


if __name__ == "__main__":
    main()
