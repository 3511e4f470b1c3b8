"""A run of two iterations, its report, and a file whose texts attack the page."""

import pytest

from dialrl.advantage.config import AdvantageConfig
from dialrl.advantage.stage import compute_advantages
from dialrl.report.stage import report
from dialrl.returns.config import ReturnsConfig
from dialrl.returns.stage import compute_returns
from dialrl.train.config import PipelineConfig
from dialrl.train.loop import train
from report_pages import ATTACK
from trajectory_files import judged, write


@pytest.fixture(scope="session")
def run_directory(policy, tmp_path_factory):
    """Two iterations of two groups of three dialogues, evaluated before and after."""
    sections = {
        "policy": str(policy),
        "train": {"iterations": 2, "evaluate_every": 2},
        "rollout": {"groups": 2, "samples": 3, "max_turns": 3, "max_reply_tokens": 6},
        "update": {"learning_rate": 0.003, "device": "cpu"},
        "evaluate": {"groups": 2, "samples": 1, "resamples": 20},
    }
    run = tmp_path_factory.mktemp("runs") / "tiny"
    train(PipelineConfig.model_validate(sections), run)
    return run


@pytest.fixture(scope="session")
def run_page(run_directory, tmp_path_factory):
    page = tmp_path_factory.mktemp("page") / "report.html"
    report([run_directory], page)
    return page


@pytest.fixture(scope="session")
def hostile_file(tmp_path_factory):
    """An advantage file with markup in every text a model, a judge or a logger could have written."""
    folder = tmp_path_factory.mktemp("hostile")
    rows = judged({"g<b>": [(-7.0, -6.0), (-8.0, -8.0)]})
    for row in rows:
        grade = {"indicator": ATTACK, "level": 1, "evidence": ATTACK, "reasoning": ATTACK}
        row.update(
            reply=ATTACK, thinking=ATTACK, flags=[ATTACK], grades=[grade], finish_reason="length",
            messages=[{"role": "user", "name": ATTACK, "content": ATTACK}],
        )  # fmt: skip
    rows[1].update(judge_status="missing", judge_error=ATTACK, position_estimated=True, increment=None)
    write(folder / "judge.parquet", rows, "rollout", "judge")
    compute_returns(folder / "judge.parquet", folder / "returns.parquet", ReturnsConfig(max_missing=1.0))
    compute_advantages(folder / "returns.parquet", folder / "advantage.parquet", AdvantageConfig(preset="grpo"))
    return folder / "advantage.parquet"
