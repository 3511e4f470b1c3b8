"""The pipeline that credits what the user tells of a hidden need, shrunk: who listens, and what is trained."""

from dialrl.resources import resource
from dialrl.train.config import read_pipeline
from dialrl.train.loop import train
from dialrl.trajectory.reader import TrajectoryFile

SMALL = {
    "train": {"iterations": 2, "evaluate_every": 0},
    "rollout": {"groups": 2, "samples": 2, "max_turns": 3},
    "update": {"warmup_steps": 0},
}


def test_the_listener_is_the_policy_the_run_begins_with_in_every_iteration(tmp_path):
    train(read_pipeline(resource("demo-needs.yaml", kind="pipelines"), SMALL), tmp_path / "run")
    files = [TrajectoryFile.open(tmp_path / "run" / f"{number:04d}" / "advantage.parquet") for number in (0, 1)]
    listeners = [file.lineage.record("judge").details["scorer_digest"] for file in files]
    sampled_by = [file.read(["policy_digest"])["policy_digest"][0].as_py() for file in files]
    assert listeners == [sampled_by[0]] * 2
    assert sampled_by[1] != sampled_by[0]
    gains = files[0].read(["reward_information-gain"])["reward_information-gain"]
    assert gains.null_count == 0
