"""Information gain over hidden needs (beyond the paper) in the demo world: which of the user's answers tell the need.

    python benchmarks/need_gains.py [--groups 64] [--samples 4] [-o benchmarks/results/need_gains.json]

The base policy of the demo world holds dialogues on held-out scenarios and, frozen, listens to them: the hidden need is
the detail that the user tells only when asked at the right moment, among the world's twenty details. Mean gain of log q
and of q by what the user's answer means, beside the control, in which needs are permuted among dialogues.
"""

import argparse
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from result_file import show

from dialrl.environment.demo.lines import symbol_of
from dialrl.judge.config import JudgeConfig
from dialrl.judge.files import judge_files
from dialrl.rollout.config import RolloutConfig
from dialrl.rollout.policy import open_policy
from dialrl.rollout.stage import roll_out
from dialrl.trajectory.reader import TrajectoryFile
from dialrl.trajectory.rows import table_to_dialogues

LISTENER = "demo-policy"
OPTIONS = {"targets": "needs", "line": "So under all of it is your {need}."}
COLUMNS = (
    "messages", "final_messages", "belief_before", "belief_after", "belief_before_shuffled", "belief_after_shuffled",
)  # fmt: skip


def judged(folder: Path, groups: int, samples: int) -> tuple[Path, dict[str, Any]]:
    """The judged dialogues and the summary's figures."""
    config = RolloutConfig(environment="demo", split="test", groups=groups, samples=samples, max_reply_tokens=24)
    roll_out(open_policy(LISTENER), folder / "rollout.parquet", config)
    judge = JudgeConfig(judge="information-gain", judge_options=OPTIONS)
    summary = judge_files(folder / "rollout.parquet", folder / "judge.parquet", judge, policy=LISTENER)
    return folder / "judge.parquet", summary.figures


def by_answer(path: Path) -> dict[str, dict[str, float]]:
    """Mean gains by what the user's answer means."""
    found: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    source = TrajectoryFile.open(path)
    for table in source.groups(["group_id", "sample", "turn", *COLUMNS]):
        for rows in table_to_dialogues(table):
            for number, row in enumerate(rows):
                after = rows[number + 1]["messages"] if number + 1 < len(rows) else row["final_messages"]
                found[symbol_of(after[-1]["content"]).name.lower()].append(_gains(row))
    means = {name: (len(gains), *np.mean(gains, axis=0)) for name, gains in sorted(found.items())}
    names = ("turns", "log", "probability", "shuffled_probability")
    return {
        name: {key: round(float(value), 4) for key, value in zip(names, values, strict=True)}
        for name, values in means.items()
    }


def _gains(row: dict[str, Any]) -> tuple[float, float, float]:
    before, after = row["belief_before"], row["belief_after"]
    control = np.exp(row["belief_after_shuffled"]) - np.exp(row["belief_before_shuffled"])
    return after - before, float(np.exp(after) - np.exp(before)), float(control)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, default=64)
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path, figures = judged(Path(folder), arguments.groups, arguments.samples)
        result = {
            "benchmark": "need_gains",
            "dialogues": arguments.groups * arguments.samples,
            "judge_options": OPTIONS,
            **{key: figures[key] for key in ("gain", "gain_shuffled", "need_believed_in_the_end", "by_chance")},
            "by_answer": by_answer(path),
        }
    show(result, arguments.output)


if __name__ == "__main__":
    main()
