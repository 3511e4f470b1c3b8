"""All stages by their commands, with a tiny random policy: what each says, and what ``train`` makes of them."""

import json

import pytest
import yaml

from dialrl.trajectory.reader import TrajectoryFile

SHORT = ("--set", "max_turns=2", "--set", "max_reply_tokens=5")


@pytest.fixture
def chain(run, policy, tmp_path):
    """Runs a stage on the file of the one before and gives its summary."""

    def stage(name, source=None, *options):
        inputs = [] if source is None else [tmp_path / source]
        return run(name, *inputs, "-o", tmp_path / f"{name}.parquet", "--json", *options).json

    return stage


def test_the_stages_one_after_the_other(run, chain, policy, tmp_path):
    rollout = chain("rollout", None, "--policy", policy, "--groups", "2", "--samples", "2", *SHORT)
    assert (rollout["counts"]["dialogues"], rollout["counts"]["turns"], rollout["history"]) == (4, 8, "append")
    assert any("8 of 8 replies were cut" in warning for warning in rollout["warnings"])
    assert chain("judge", "rollout.parquet")["counts"] == {"judgements_ok": 8}
    assert chain("returns", "judge.parquet", "--slim")["counts"]["turns"] == 8
    assert chain("advantage", "returns.parquet", "--preset", "mica")["counts"]["turns_credited"] == 8
    advantage, updated = tmp_path / "advantage.parquet", tmp_path / "policy"
    update = run("update", advantage, "--policy", policy, "-o", updated, "--learning-rate", "0.001", "--json").json
    assert (update["step"], update["counts"]["trained_tokens"]) == (1, rollout["counts"]["reply_tokens"])
    assert update["policy_digest"] != update["parent_digest"] == rollout["policy"]
    again = run("rollout", "--policy", updated, "-o", tmp_path / "next.parquet", "--groups", "1", "--json", *SHORT).json
    assert (again["policy"], again["policy_step"]) == (update["policy_digest"], 1)
    scores = run("evaluate", "dialogue", "--policy", updated, "--groups", "2", "--resamples", "20", "--json", *SHORT)
    assert {"score", "share", "share_interval", "reference"} < set(scores.json)
    shown = run("inspect", advantage, "--dialogue", rollout_dialogue(advantage), "--tokens").out
    assert shown.count("tokens trained") == 2
    assert "advantage" in shown


def rollout_dialogue(path):
    return TrajectoryFile.open(path).read(["dialogue_id"])["dialogue_id"][0].as_py()


def test_an_advantage_file_with_nothing_to_learn_from_updates_nothing(run, chain, policy, tmp_path):
    chain("rollout", None, "--policy", policy, "--groups", "2", "--samples", "1", *SHORT)
    chain("judge", "rollout.parquet")
    chain("returns", "judge.parquet")
    chain("advantage", "returns.parquet", "--preset", "grpo")
    ended = run("update", tmp_path / "advantage.parquet", "--policy", policy, "-o", tmp_path / "new", "--json")
    assert any("no learning signal" in warning.lower() for warning in ended.json["warnings"])
    assert ended.json["policy_digest"] == ended.json["parent_digest"]


@pytest.mark.parametrize("stage", ["rollout", "judge"])
def test_a_file_that_was_not_through_advantage_cannot_be_trained(run, chain, policy, tmp_path, stage):
    chain("rollout", None, "--policy", policy, "--groups", "1", "--samples", "2", *SHORT)
    if stage == "judge":
        chain("judge", "rollout.parquet")
    ended = run("update", tmp_path / f"{stage}.parquet", "--policy", policy, "-o", tmp_path / "new")
    assert (ended.code, ended.out) == (2, "")
    assert "advantage" in ended.err
    assert not (tmp_path / "new").exists()


@pytest.fixture
def pipeline_file(policy, tmp_path):
    path = tmp_path / "tiny.yaml"
    short = {"max_turns": 2, "max_reply_tokens": 5}
    sections = {
        "policy": str(policy),
        "train": {"iterations": 2, "evaluate_every": 1, "save_every": 1},
        "rollout": {"groups": 2, "samples": 2, **short},
        "update": {"learning_rate": 0.001, "device": "cpu"},
        "evaluate": {"groups": 2, "samples": 1, "resamples": 20},
    }
    path.write_text(yaml.safe_dump(sections))
    return path


def test_training_shows_its_curve_a_dialogue_before_and_after_and_where_files_lie(run, pipeline_file, tmp_path):
    ended = run("train", pipeline_file, "-o", tmp_path / "run")
    assert ended.code == 0, ended.err
    assert ended.err.count("iteration 1/2") == ended.err.count("iteration 2/2") == 1
    assert "share on held-out scenarios, by iteration" in ended.out
    assert "myopic 0." in ended.out
    assert "optimum 1.00" in ended.out
    assert "before training" in ended.out
    assert "after training" in ended.out
    assert f"{tmp_path}/run/metrics.jsonl" in ended.out
    refused = run("train", pipeline_file, "-o", tmp_path / "run")
    assert (refused.code, "Continue the run with --resume" in refused.err) == (2, True)
    differs = run("train", pipeline_file, "-o", tmp_path / "run", "--resume", "--set", "returns.missing=zero")
    assert (differs.code, "returns.missing: 'fill' -> 'zero'" in differs.err) == (2, True)
    resumed = run("train", pipeline_file, "-o", tmp_path / "run", "--resume", "--json", "--quiet").json
    assert (resumed["counts"], resumed["measure"]) == ({"iterations": 2}, "share")
    lines = (tmp_path / "run" / "evaluations.jsonl").read_text().splitlines()
    assert resumed["base"] == json.loads(lines[0])["share"]


def test_training_needs_one_pipeline_and_a_place(run, pipeline_file, tmp_path):
    assert "takes one pipeline YAML; got 2" in run("train", pipeline_file, pipeline_file, "-o", tmp_path / "run").err
    assert "say where: -o runs/NAME" in run("train", pipeline_file).err
    assert (
        "'demoo.yaml' is neither a file nor a shipped pipeline"
        in run("train", "demoo.yaml", "-o", tmp_path / "run").err
    )
    assert run("train", tmp_path / "nowhere.yaml", "-o", tmp_path / "run").code == 2
