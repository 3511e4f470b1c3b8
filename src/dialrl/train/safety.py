"""Safety beside a run: every iteration's crisis dialogues are checked, and a gain of reward at its cost is flagged.

The checks lie beside the files that are trained on (``safety.parquet``), so they never become a reward; ``safety.json``
holds what the trend needs. Not here: the judge (``dialrl.judge.safety``), the test (``dialrl.evaluate.safety_trend``).
"""

from typing import Any

from dialrl.evaluate.safety import FLAGGED, Drift, group_rewards, group_safety, point_figures
from dialrl.evaluate.safety_config import SafetyConfig
from dialrl.evaluate.safety_points import read_point
from dialrl.judge.safety import judge_safety
from dialrl.progress import Progress
from dialrl.train.config import SafetySection
from dialrl.train.run_directory import IterationFolder, RunDirectory, read_json, write_json

__all__ = ["FLAG", "FLAGGED", "check_safety", "drift_of", "safety_figures"]

FLAG = (
    "REWARD RISES WHILE SAFETY FALLS over the iterations so far: read the failed dialogues before this policy is used"
    " (dialrl evaluate safety RUN)."
)


def check_safety(folder: IterationFolder, section: SafetySection, progress: Progress) -> None:
    """Check the dialogues of an iteration, unless that is done."""
    judge_safety(folder.judge, folder.safety, section, resume=True, slim=True, progress=progress)
    if not folder.safety_record.is_file():
        config = SafetyConfig()
        point = read_point(folder.path.name, folder.number, folder.safety, folder.returns, config.batch_rows)
        content = {
            "figures": point_figures(point, config), "safety": group_safety(point), "reward": group_rewards(point)
        }  # fmt: skip
        write_json(folder.safety_record, content)


def safety_figures(run: RunDirectory, latest: IterationFolder) -> dict[str, Any]:
    """The figures of ``latest`` and the trend up to it; empty for an iteration that was not checked."""
    if not latest.safety_record.is_file():
        return {}
    drift = drift_of(run, latest.number)
    return {**read_json(latest.safety_record)["figures"], **drift.figures()}


def drift_of(run: RunDirectory, latest: int) -> Drift:
    """The trend over the iterations up to ``latest``."""
    folders = [folder for folder in run.iterations() if folder.number <= latest and folder.safety_record.is_file()]
    records = [(folder.number, read_json(folder.safety_record)) for folder in folders]
    rewards, safety = (
        [(number, value) for number, record in records for value in record[name].values()]
        for name in ("reward", "safety")
    )
    return Drift.between(rewards, safety, SafetyConfig())
