"""The demo at full length, over three seeds: what the README promises. Long; runs in `make check-full` only."""

import json
from pathlib import Path

import pytest

from dialrl.train.config import read_pipeline
from dialrl.train.loop import train

PIPELINE = Path(__file__).parents[2] / "pipelines" / "demo.yaml"
SEEDS = (0, 1, 2)


def held_out_shares(folder: Path, seed: int) -> tuple[float, float, float]:
    """Base, final and myopic share on held-out scenarios of one demo run."""
    run = folder / str(seed)
    seeds = {section: {"seed": seed} for section in ("rollout", "judge", "update")}
    train(read_pipeline(PIPELINE, seeds), run)
    evaluations = [json.loads(line) for line in (run / "evaluations.jsonl").read_text(encoding="utf-8").splitlines()]
    return evaluations[0]["share"], evaluations[-1]["share"], evaluations[-1]["reference"]["myopic"]["share"]


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_three_seeds_learn_what_lies_beyond_the_myopic_policy(tmp_path: Path) -> None:
    runs = [held_out_shares(tmp_path, seed) for seed in SEEDS]
    (tmp_path / "shares.json").write_text(json.dumps(runs), encoding="utf-8")
    base = sum(run[0] for run in runs) / len(runs)
    final = sum(run[1] for run in runs) / len(runs)
    print("base, final, myopic by seed:", [tuple(round(share, 3) for share in run) for run in runs])
    assert base < 0.25
    assert final >= 0.60
    assert final >= base + 0.35
    assert final > max(run[2] for run in runs)
    assert max(run[2] for run in runs) <= 0.55
