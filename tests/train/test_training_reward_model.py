"""A reward model beside the policy: what scores which dialogues, what it learns from, and a run that was killed."""

import json
import os
from pathlib import Path

import pytest
from tests.train.test_training import killed, needs_fork
from tests.trajectory_files import read

from dialrl.config import merged, validated
from dialrl.errors import InputError, UsageError
from dialrl.model.digest import policy_digest
from dialrl.train.check import check_pipeline
from dialrl.train.config import PipelineConfig
from dialrl.train.loop import train
from dialrl.trajectory.reader import TrajectoryFile
from run_contents import assert_equal_runs, contents


def pipeline(policy, **changes):
    """Three iterations of two groups of two dialogues; the trainers are saved after the second and the last."""
    sections = {
        "policy": str(policy),
        "train": {"iterations": 3, "evaluate_every": 0, "save_every": 2, "keep_last": 1},
        "rollout": {"groups": 2, "samples": 2, "max_turns": 2, "max_reply_tokens": 6},
        "reward_model": {
            "scores": {"beta": 0.3, "outcome_range": [-15, 15]},
            "update": {"learning_rate": 0.01, "mini_batch_dialogues": 3, "device": "cpu"},
        },
        "returns": {"reward": ["implicit"], "gamma": 1.0},
        "advantage": {"preset": "itpo"},
        "update": {"learning_rate": 0.003, "device": "cpu"},
    }  # fmt: skip
    return PipelineConfig.model_validate(merged(sections, changes))


@pytest.fixture(scope="module")
def unbroken(policy, tmp_path_factory):
    """The run directory of a run that nothing disturbed, and how often it made something durable."""
    run = tmp_path_factory.mktemp("unbroken") / "run"
    syncs, sync = [], os.fsync
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", lambda descriptor: (syncs.append(descriptor), sync(descriptor))[1])
        train(pipeline(policy), run)
    return run, len(syncs)


def scored_by(run: Path, number: int) -> str:
    """Digest of the model that scored an iteration's dialogues."""
    record = TrajectoryFile.open(run / f"{number:04d}" / "implicit.parquet").lineage.record("judge")
    return record.details["reward_model_digest"]


def model_of(run: Path, number: int) -> dict:
    return json.loads((run / f"{number:04d}" / "reward_model" / "manifest.json").read_text())


def test_dialogues_are_scored_by_the_model_that_has_not_learned_from_them(policy, unbroken):
    run, _ = unbroken
    start = policy_digest(policy / "model" if (policy / "model").is_dir() else policy)
    assert scored_by(run, 0) == start
    assert len({scored_by(run, number) for number in range(3)}) == 3
    last = model_of(run, 2)
    assert last["parent"] == scored_by(run, 2)
    assert last["digest"] not in [scored_by(run, number) for number in range(3)]
    assert (last["step"], last["inputs"][0]["name"]) == (3, "judge.parquet")
    assert last["options"]["reference"] == start


def test_the_turns_share_out_the_label_and_the_policy_is_trained_on_it(unbroken):
    run, _ = unbroken
    for number in range(3):
        rows = read(run / f"{number:04d}" / "advantage.parquet")
        for first, second in zip(rows[::2], rows[1::2], strict=True):
            shares = [first["implicit_reward"], second["implicit_reward"]]
            assert sum(shares) == pytest.approx((second["outcome"] + 15) / 30)
            assert (shares[0] == pytest.approx(shares[1])) == (number == 0)  # at first it is its own reference
        assert [row["reward"] for row in rows] == [row["implicit_reward"] for row in rows]
        assert any(row["advantage"] for row in rows)
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert metrics[0]["reward_model"]["pairwise_accuracy"] is not None
    assert [one["reward_model"]["counts"]["optimizer_steps"] for one in metrics] == [2, 2, 2]


def test_policies_and_reward_models_are_kept_for_the_same_iterations(unbroken):
    run, _ = unbroken
    for folder in ("policy", "reward_model"):
        assert [(run / f"{number:04d}" / folder).exists() for number in range(3)] == [False, False, True]
    assert (run / "0002" / "reward_model" / "trainer").is_dir()


def test_the_model_may_learn_first(policy, tmp_path):
    configured = pipeline(policy, train={"iterations": 1}, reward_model={"order": "update-then-score"})
    train(configured, tmp_path / "run")
    assert scored_by(tmp_path / "run", 0) == model_of(tmp_path / "run", 0)["digest"]


@needs_fork
@pytest.mark.parametrize("share", [0.35, 0.62, 0.9])
def test_killed_anywhere_and_resumed_a_run_equals_the_unbroken_one(policy, tmp_path, unbroken, share):
    run, syncs = tmp_path / "run", unbroken[1]
    killed(pipeline(policy), run, at_sync=round(share * syncs))
    train(pipeline(policy), run, resume=True)
    assert_equal_runs(run, contents(unbroken[0]))


@needs_fork
def test_so_does_one_with_a_lag(policy, tmp_path):
    configured = pipeline(policy, train={"lag": 1}, update={"max_lag": 1})
    train(configured, tmp_path / "whole")
    killed(configured, tmp_path / "run", at_sync=60)
    train(configured, tmp_path / "run", resume=True)
    assert_equal_runs(tmp_path / "run", contents(tmp_path / "whole"))


def test_a_finished_run_is_resumed_without_doing_anything_and_its_models_are_looked_over(policy, tmp_path):
    configured = pipeline(policy, train={"iterations": 1})
    train(configured, tmp_path / "run")
    before = contents(tmp_path / "run")
    train(configured, tmp_path / "run", resume=True)
    assert_equal_runs(tmp_path / "run", before)
    weights = tmp_path / "run" / "0000" / "reward_model" / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4])
    with pytest.raises(InputError, match=r"damaged in '.*reward_model/model/model.safetensors'"):
        train(configured, tmp_path / "run", resume=True)


# refusals -----------------------------------------------------------------------------------------------------------


def test_the_channel_without_a_model_is_refused_at_the_start(policy):
    with pytest.raises(UsageError, match=r"section 'returns': the channel implicit .* section reward_model"):
        check_pipeline(pipeline(policy, reward_model=None))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"update": {"outcome_beta": 0.5}}, "set it in scores alone"),
        ({"update": {"reference": "elsewhere"}}, "the policy that the run starts from"),
        ({"update": {"loss": "ppo"}}, "reward_model.update.loss"),
        ({"scores": {"temprature": 1.0}}, "temprature"),
    ],
)
def test_settings_of_the_model_that_contradict_are_refused(policy, changes, said):
    sections = pipeline(policy).model_dump(mode="json")
    sections["reward_model"] = {"update": {}, **changes}
    with pytest.raises(UsageError, match=said):
        validated(PipelineConfig, sections, where="the pipeline")


def test_another_temperature_of_the_shares_is_another_run_and_another_device_is_not(policy):
    one, other, elsewhere = (
        pipeline(policy, reward_model=changes).identity()
        for changes in ({}, {"scores": {"temperature": 0.7}}, {"update": {"device": "cuda"}})
    )
    assert {key for key in one if one[key] != other[key]} == {"reward_model.scores"}
    assert one == elsewhere
