"""A lag of one: the next rollout runs while an update does, by the policy before it; killed runs end the same."""

import json
import os
import random
import threading

import pytest
from tests.train.test_training import killed, needs_fork, pipeline

from dialrl.advantage.stage import compute_advantages
from dialrl.errors import InputError, NumericalError, RunError
from dialrl.judge.stage import judge_dialogues
from dialrl.returns.stage import compute_returns
from dialrl.rollout.policy import open_policy
from dialrl.rollout.stage import roll_out
from dialrl.train import loop
from dialrl.train.beside import beside
from dialrl.train.config import PipelineConfig, update_config
from dialrl.train.loop import train
from dialrl.trajectory.reader import TrajectoryFile
from dialrl.update.trainer import Trainer
from run_contents import assert_equal_runs, contents

PATIENCE_SECONDS = 60.0


def lagging(policy, **train):
    return pipeline(policy, train={"iterations": 4, "lag": 1, **train})


@pytest.fixture(scope="module")
def unbroken(policy, tmp_path_factory):
    """A run that nothing disturbed, and how often it made something durable."""
    run = tmp_path_factory.mktemp("lag") / "run"
    syncs, sync = [], os.fsync
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", lambda descriptor: (syncs.append(descriptor), sync(descriptor))[1])
        train(lagging(policy), run)
    return run, len(syncs)


def test_each_rollout_is_by_the_policy_before_the_update_beside_it(unbroken):
    run, _ = unbroken
    tables = [TrajectoryFile.open(run / f"{n:04d}" / "rollout.parquet").read() for n in range(4)]
    assert [set(table["policy_step"].to_pylist()) for table in tables] == [{0}, {0}, {1}, {2}]
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [record["iteration"] for record in metrics] == [0, 1, 2, 3]
    assert not [text for record in metrics for text in record["update"]["warnings"] if "rolled out by policy" in text]


def test_a_run_with_a_lag_equals_its_stages_one_by_one(policy, tmp_path, unbroken):
    configured = lagging(policy)
    policies = [policy]
    trainer = Trainer.open(policy, update_config(configured), total_steps=4)
    for number in range(4):
        folder = tmp_path / f"{number:04d}"
        speaker = open_policy(policies[max(0, number - 1)])
        roll_out(speaker, folder / "rollout.parquet", configured.rollout.updated(iteration=number))
        judge_dialogues(folder / "rollout.parquet", folder / "judge.parquet", configured.judge, slim=True)
        compute_returns(folder / "judge.parquet", folder / "returns.parquet", configured.returns, slim=True)
        compute_advantages(folder / "returns.parquet", folder / "advantage.parquet", configured.advantage, slim=True)
        trainer.step_file(folder / "advantage.parquet")
        trainer.save(folder / "policy", with_trainer_state=number in (1, 3))  # save_every is 2
        policies.append(folder / "policy")
    expected = contents(unbroken[0])
    found = {name: content for name, content in contents(tmp_path).items() if name in expected}
    assert {"0003/policy/manifest.json", "0003/rollout.parquet", "0000/advantage.parquet"} <= set(found)
    assert [name for name, content in found.items() if content != expected[name]] == []


def test_rollout_and_update_really_run_at_the_same_time(policy, tmp_path, monkeypatch):
    updating, rolling, met = threading.Event(), threading.Event(), []

    def step_file(trainer, source, *rest, original=Trainer.step_file):
        if trainer.step == 0:
            updating.set()
            met.append(rolling.wait(PATIENCE_SECONDS))  # cannot end before the rollout beside it has begun
        return original(trainer, source, *rest)

    def rolled_out(speaker, output, config, original=loop.roll_out, **options):
        if config.iteration == 1:
            rolling.set()
            met.append(updating.wait(PATIENCE_SECONDS))
        return original(speaker, output, config, **options)

    monkeypatch.setattr(Trainer, "step_file", step_file)
    monkeypatch.setattr(loop, "roll_out", rolled_out)
    train(lagging(policy, iterations=2, evaluate_every=0), tmp_path / "run")
    assert met == [True, True]


@needs_fork
@pytest.mark.parametrize("share", [0.3, 0.55, 0.8])
def test_killed_anywhere_and_resumed_it_equals_the_unbroken_run(policy, tmp_path, unbroken, share):
    run, syncs = tmp_path / "run", unbroken[1]
    killed(lagging(policy), run, at_sync=max(1, round(share * syncs)))
    train(lagging(policy), run, resume=True)
    assert_equal_runs(run, contents(unbroken[0]))


@needs_fork
def test_killed_again_and_again_it_comes_to_the_same_end(policy, tmp_path, unbroken):
    run, draws = tmp_path / "run", random.Random(3)
    for _ in range(3):
        killed(lagging(policy), run, at_sync=draws.randrange(5, 40))
    train(lagging(policy), run, resume=True)
    assert_equal_runs(run, contents(unbroken[0]))


def test_a_run_that_goes_on_for_longer_is_the_longer_run(policy, tmp_path, unbroken):
    train(lagging(policy, iterations=2), tmp_path / "run")
    train(lagging(policy), tmp_path / "run", resume=True)
    steps = TrajectoryFile.open(tmp_path / "run" / "0002" / "rollout.parquet").read(["policy_step"])
    assert set(steps["policy_step"].to_pylist()) == {1}


def test_an_update_that_fails_ends_the_run_once_the_rollout_beside_it_is_whole(policy, tmp_path, monkeypatch):
    def broken(*_):
        raise NumericalError("loss nan")

    monkeypatch.setattr(Trainer, "step_file", broken)
    with pytest.raises(NumericalError, match="loss nan"):
        train(lagging(policy, evaluate_every=0), tmp_path / "run")
    assert (tmp_path / "run" / "0001" / "advantage.parquet").is_file()


def test_work_beside_a_block_that_fails_is_stopped_and_over_before_the_error_goes_on():
    stopped, over = threading.Event(), []

    def work():
        over.append(stopped.wait(PATIENCE_SECONDS))

    with pytest.raises(RunError, match="the rollout broke"), beside(work, stopped.set):
        raise RunError("the rollout broke")
    assert over == [True]


def test_a_lag_that_every_file_would_be_too_old_for_is_refused(policy):
    with pytest.raises(ValueError, match=r"update.max_lag 0 would refuse every file of a run with train.lag 1"):
        pipeline(policy, train={"lag": 1}, update={"max_lag": 0})
    assert update_config(pipeline(policy, train={"lag": 1})).max_lag == 1
    assert update_config(pipeline(policy)).max_lag is None


def test_files_older_than_the_lag_are_refused(policy, tmp_path, unbroken):
    run, _ = unbroken
    trainer = Trainer.open(run / "0003" / "policy", update_config(lagging(policy)), total_steps=5)
    with pytest.raises(InputError, match=r"policy step 2, 2 steps before.*max_lag allows 1"):
        trainer.step_file(run / "0003" / "advantage.parquet")


# devices and processes ----------------------------------------------------------------------------------------------


def test_devices_of_their_own_are_written_into_the_sections():
    given = {"train": {"devices": {"rollout": "cuda:0", "update": "cuda:1,cuda:2"}}, "rollout": {"device": "cpu"}}
    placed = PipelineConfig.model_validate(given).on_its_devices()
    assert (placed.rollout.device, placed.evaluate.device) == ("cuda:0", "cuda:0")
    assert (placed.update.device, placed.update.processes) == ("cuda:1,cuda:2", 2)
    shared = PipelineConfig.model_validate({"rollout": {"device": "cuda"}})
    assert shared.on_its_devices() is shared


def test_a_run_may_update_in_two_processes_and_go_on_in_one(policy, tmp_path):
    devices = {"rollout": "cpu", "update": "cpu,cpu"}
    train(lagging(policy, iterations=2, evaluate_every=0, devices=devices), tmp_path / "run")
    assert len(list((tmp_path / "run" / "0001" / "policy" / "trainer").glob("moments-process-*"))) == 2
    assert train(lagging(policy, iterations=3, evaluate_every=0), tmp_path / "run", resume=True).counts == {
        "iterations": 3
    }
