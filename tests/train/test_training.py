"""The loop: equal to its stages one by one, and equal to itself however often it was killed and resumed."""

import json
import os
import random
import shutil
import signal
from pathlib import Path

import pytest

from dialrl.advantage.stage import compute_advantages
from dialrl.cli.train_view import show_run
from dialrl.config import merged
from dialrl.errors import FailureThresholdError, InputError, OutputExistsError, UsageError
from dialrl.judge.stage import judge_dialogues
from dialrl.returns.stage import compute_returns
from dialrl.rollout.policy import open_policy
from dialrl.rollout.stage import roll_out
from dialrl.train.config import PipelineConfig
from dialrl.train.loop import train
from dialrl.trajectory.reader import TrajectoryFile
from dialrl.update.policy_directory import read_manifest
from dialrl.update.stage import update_policy
from run_contents import assert_equal_runs, contents


def pipeline(policy, **changes):
    """Three iterations of three groups of two dialogues; the trainer is saved after the second and the last."""
    sections = {
        "policy": str(policy),
        "train": {"iterations": 3, "evaluate_every": 2, "save_every": 2, "keep_last": 1},
        "rollout": {"groups": 3, "samples": 2, "max_turns": 3, "max_reply_tokens": 6, "block_dialogues": 4},
        "update": {"learning_rate": 0.003, "device": "cpu"},
        "evaluate": {"groups": 2, "samples": 1, "resamples": 20, "seed": 7},  # with it each evaluation is a better one
    }
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


# the stages one by one ----------------------------------------------------------------------------------------------


def chained(policy, run: Path, configured: PipelineConfig, iterations: int) -> None:
    """The same files in the same layout, made by the stages' own functions."""
    before = policy
    for number in range(iterations):
        folder = run / f"{number:04d}"
        roll_out(open_policy(before), folder / "rollout.parquet", configured.rollout.updated(iteration=number))
        judge_dialogues(folder / "rollout.parquet", folder / "judge.parquet", configured.judge, slim=True)
        compute_returns(folder / "judge.parquet", folder / "returns.parquet", configured.returns, slim=True)
        compute_advantages(folder / "returns.parquet", folder / "advantage.parquet", configured.advantage, slim=True)
        update_policy(
            folder / "advantage.parquet", before, folder / "policy", configured.update, total_steps=iterations
        )
        before = folder / "policy"


@pytest.mark.parametrize(
    "update", [{}, {"schedule": "linear", "warmup_steps": 1, "epochs": 2}], ids=["plain", "linear"]
)
def test_two_iterations_equal_the_stages_one_by_one_in_every_file(policy, tmp_path, update):
    configured = pipeline(policy, train={"iterations": 2, "evaluate_every": 0, "save_every": 1}, update=update)
    train(configured, tmp_path / "run")
    chained(policy, tmp_path / "chain", configured, 2)
    looped, chain = contents(tmp_path / "run"), contents(tmp_path / "chain")
    kept = {name: value for name, value in chain.items() if not name.startswith("0000/policy")}
    assert {name: looped[name] for name in kept} == kept
    assert set(looped) - set(kept) == {"pipeline.yaml", "metrics.jsonl", "evaluations.jsonl"} | {
        f"{number:04d}/metrics.json" for number in (0, 1)
    }
    assert "0001/policy/model/model.safetensors" in kept
    assert any(name.startswith("0001/policy/trainer/moments") for name in kept)


def test_the_updates_change_the_weights_and_the_next_rollout_uses_them(unbroken):
    run, _ = unbroken
    digests = [
        TrajectoryFile.open(run / f"{number:04d}" / "rollout.parquet").read(["policy_digest", "policy_step"])
        for number in range(3)
    ]
    steps = [set(table["policy_step"].to_pylist()) for table in digests]
    assert steps == [{0}, {1}, {2}]
    names = [digest for table in digests for digest in set(table["policy_digest"].to_pylist())]
    assert len(set(names)) == 3
    manifest = json.loads((run / "0002" / "policy" / "manifest.json").read_text())
    assert manifest["parent"] == names[2]
    assert manifest["step"] == 3


def test_a_run_holds_its_trajectories_metrics_and_kept_policies(unbroken):
    run, _ = unbroken
    assert [(run / f"{number:04d}" / "policy").exists() for number in range(3)] == [False, False, True]
    assert all((run / f"{number:04d}" / "advantage.parquet").is_file() for number in range(3))
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [record["iteration"] for record in metrics] == [0, 1, 2]
    assert metrics[0]["counts"]["rollout"]["dialogues"] == 6
    assert any("replies were cut" in warning for warning in metrics[0]["warnings"])
    evaluations = [json.loads(line) for line in (run / "evaluations.jsonl").read_text().splitlines()]
    assert [record["iteration"] for record in evaluations] == [-1, 1, 2]
    scores = [record["score"] for record in evaluations]
    assert scores == sorted(set(scores))
    assert (run / "best" / "manifest.json").read_bytes() == (run / "0002" / "policy" / "manifest.json").read_bytes()
    assert not (run / "best" / "trainer").exists()
    assert json.loads((run / "best.json").read_text()) == {"iteration": 2, "score": scores[-1]}


def test_a_run_twice_is_the_same_run(policy, tmp_path, unbroken):
    seen = []
    train(pipeline(policy), tmp_path / "run", watch=seen.append)
    assert_equal_runs(tmp_path / "run", contents(unbroken[0]))
    assert [record["iteration"] for record in seen] == [0, 1, 2]
    assert [record["evaluation"] is not None for record in seen] == [False, True, True]


def test_where_nothing_was_better_the_policy_of_the_start_is_the_best(policy, tmp_path):
    frozen = pipeline(policy, train={"iterations": 1, "evaluate_every": 1}, update={"learning_rate": 1e-12})
    run = tmp_path / "run"
    train(frozen, run)
    assert json.loads((run / "best.json").read_text())["iteration"] == -1
    assert open_policy(run / "best").digest == open_policy(policy).digest
    before = contents(run)
    train(frozen, run, resume=True)
    assert_equal_runs(run, before)


def test_a_run_from_a_policy_that_another_run_trained_begins_its_own_schedule(policy, tmp_path):
    configured = {"train": {"iterations": 1, "evaluate_every": 0}, "update": {"schedule": "linear"}}
    first = pipeline(policy, **configured)
    train(first, tmp_path / "first")
    trained = tmp_path / "first" / "0000" / "policy"
    from_the_policy, from_its_model = tmp_path / "second", tmp_path / "third"
    train(pipeline(trained, **configured), from_the_policy)
    train(pipeline(trained / "model", **configured), from_its_model)
    manifest = read_manifest(from_the_policy / "0000" / "policy")
    assert (manifest.step, manifest.parent) == (1, read_manifest(trained).digest)
    assert manifest.digest == read_manifest(from_its_model / "0000" / "policy").digest
    rates = [json.loads(line)["learning_rate"] for line in (trained / "metrics.jsonl").read_text().splitlines()]
    again = (from_the_policy / "0000" / "policy" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["learning_rate"] for line in again] == rates


# kills --------------------------------------------------------------------------------------------------------------


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="a process is killed that was forked")


def killed(configured: PipelineConfig, run: Path, *, at_sync: int) -> None:
    """Run in a child process that is killed as it is about to make its ``at_sync``-th thing durable."""
    child = os.fork()
    if child == 0:
        try:
            syncs, sync = iter(range(1, at_sync)), os.fsync
            os.fsync = lambda fd: sync(fd) if next(syncs, None) else os.kill(os.getpid(), signal.SIGKILL)
            train(configured, run, resume=True)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), "the run ended before it was killed"
    assert os.WTERMSIG(status) == signal.SIGKILL


@needs_fork
@pytest.mark.parametrize("share", [0.03, 0.2, 0.42, 0.61, 0.83, 0.995])
def test_killed_anywhere_and_resumed_a_run_equals_the_unbroken_one(policy, tmp_path, unbroken, share):
    run, syncs = tmp_path / "run", unbroken[1]
    killed(pipeline(policy), run, at_sync=max(1, round(share * syncs)))
    train(pipeline(policy), run, resume=True)
    assert_equal_runs(run, contents(unbroken[0]))


@needs_fork
def test_killed_again_and_again_it_comes_to_the_same_end(policy, tmp_path, unbroken):
    run, draws = tmp_path / "run", random.Random(2)
    for _ in range(3):
        killed(pipeline(policy), run, at_sync=draws.randrange(5, 40))
    train(pipeline(policy), run, resume=True)
    assert_equal_runs(run, contents(unbroken[0]))


def test_a_finished_run_is_resumed_without_doing_anything(policy, tmp_path, unbroken):
    run = shutil.copytree(unbroken[0], tmp_path / "run")
    before = {file: file.stat().st_mtime_ns for file in run.rglob("*.parquet")}
    seen = []
    summary = train(pipeline(policy), run, resume=True, watch=seen.append)
    assert {file: file.stat().st_mtime_ns for file in run.rglob("*.parquet")} == before
    assert [record["iteration"] for record in seen] == [0, 1, 2]
    assert summary.counts == {"iterations": 3}
    assert_equal_runs(run, contents(unbroken[0]))


def test_a_run_whose_finished_files_were_damaged_is_not_resumed(policy, tmp_path, unbroken):
    run = shutil.copytree(unbroken[0], tmp_path / "run")
    damaged = run / "0000" / "judge.parquet"
    damaged.write_bytes(damaged.read_bytes()[:-9])
    with pytest.raises(InputError, match=r"damaged in '.*0000/advantage.parquet'.*judge.parquet"):
        train(pipeline(policy), run, resume=True)
    for number in range(3):
        shutil.rmtree(run / f"{number:04d}")
    shutil.rmtree(run / "best")
    train(pipeline(policy), run, resume=True)
    assert_equal_runs(run, contents(unbroken[0]))


def test_metrics_that_a_kill_left_ungathered_are_gathered(policy, tmp_path, unbroken):
    run = shutil.copytree(unbroken[0], tmp_path / "run")
    (run / "metrics.jsonl").write_text("")
    stale = shutil.copytree(run / "0002" / "policy", run / "0000" / "policy") / "manifest.json"  # was to be pruned
    stale.write_text(json.dumps({**json.loads(stale.read_text()), "inputs": []}))
    train(pipeline(policy), run, resume=True)
    assert_equal_runs(run, contents(unbroken[0]))


def test_a_run_can_go_on_for_longer(policy, tmp_path, unbroken):
    run = shutil.copytree(unbroken[0], tmp_path / "run")
    longer = pipeline(policy, train={"iterations": 4})
    assert train(longer, run, resume=True).counts == {"iterations": 4}
    assert TrajectoryFile.open(run / "0003" / "rollout.parquet").read(["policy_step"])["policy_step"][0].as_py() == 3


def test_a_run_says_where_its_policy_lies_also_when_nothing_was_evaluated(policy, tmp_path, capsys):
    run = tmp_path / "run"
    summary = train(pipeline(policy, train={"iterations": 1, "evaluate_every": 0}), run)
    files = summary.to_json()["files"]
    assert files["last policy"] == str(run / "0000" / "policy")
    assert files["trajectories"] == str(run / "0000" / "advantage.parquet")
    assert {"best policy", "evaluations"} & set(files) == set()
    show_run(summary)
    assert f"last policy    {run}/0000/policy" in capsys.readouterr().out


# refusals -----------------------------------------------------------------------------------------------------------


def test_a_used_directory_and_another_configuration_are_refused(policy, unbroken):
    run, _ = unbroken
    before = contents(run)
    with pytest.raises(OutputExistsError, match="is not empty"):
        train(pipeline(policy), run)
    changed = pipeline(policy, rollout={"temperature": 0.5}, train={"keep_last": 2}, returns={"missing": "zero"})
    with pytest.raises(
        UsageError, match=r"differs: returns\.missing: 'fill' -> 'zero'; rollout\.temperature: 1\.0 -> 0\.5\. "
    ):
        train(changed, run, resume=True)
    assert contents(run) == before


def test_too_many_failures_end_the_run_and_end_it_again_when_it_is_resumed(policy, tmp_path):
    failing = pipeline(policy, judge={"judge_options": {"missing": 1.0}}, train={"evaluate_every": 0})
    for options in ({}, {"resume": True}):
        with pytest.raises(FailureThresholdError, match="18 of 18 judgements are missing"):
            train(failing, tmp_path / "run", **options)


# live grading -------------------------------------------------------------------------------------------------------


def test_a_run_may_grade_live_with_the_same_result(policy, tmp_path):
    after = pipeline(policy, train={"iterations": 2, "evaluate_every": 0})
    live = pipeline(policy, train={"iterations": 2, "evaluate_every": 0}, rollout={"grading": "live"})
    train(after, tmp_path / "after")
    train(live, tmp_path / "live")
    for number in range(2):
        columns = ["group_id", "sample", "turn", "reply_ids", "position", "stop_turn", "return", "advantage"]
        tables = [
            TrajectoryFile.open(tmp_path / name / f"{number:04d}" / "advantage.parquet").read(columns)
            for name in ("after", "live")
        ]
        assert tables[0] == tables[1]
