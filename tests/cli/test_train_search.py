"""``dialrl train`` where nobody judges: the search pipeline's baseline, shrunk, shown at its end."""

from dialrl.resources import resource
from dialrl.trajectory.reader import TrajectoryFile

SMALL = (
    "train.iterations=2", "train.evaluate_every=2", "rollout.groups=2", "rollout.samples=2", "evaluate.groups=3",
    "update.warmup_steps=0",
)  # fmt: skip


def test_an_outcome_only_baseline_needs_no_judge_and_shows_dialogues_before_and_after(run, tmp_path):
    asked = [part for change in SMALL for part in ("--set", change)]
    ended = run("train", resource("igpo-demo-grpo.yaml", kind="pipelines"), *asked, "-o", tmp_path / "run", "--quiet")
    assert ended.code == 0, ended.err
    assert "before training" in ended.out
    assert "held-out" in ended.out
    names = TrajectoryFile.open(tmp_path / "run" / "0001" / "advantage.parquet").names
    assert "belief_after" not in names
    assert "judge_status" not in names
