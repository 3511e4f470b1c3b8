"""What stands beside the grades in a run: checks of safety that no reward sees, and kl to a frozen reference that one
does.
"""

import json

import pytest
from tests.model_server import ModelServer
from tests.policies import random_policy
from tests.support_cards import card
from tests.support_world import pipeline as roles
from tests.support_world import world
from tests.toys import tiny_policy
from tests.trajectory_files import read

from dialrl.cli.train_view import IterationTable
from dialrl.config import merged, validated
from dialrl.errors import InputError, UsageError
from dialrl.evaluate.safety import evaluate_safety
from dialrl.train.check import check_pipeline
from dialrl.train.config import PipelineConfig
from dialrl.train.loop import train
from dialrl.train.run_directory import RunDirectory, write_json
from dialrl.train.safety import FLAG, safety_figures

# safety -------------------------------------------------------------------------------------------------------------


def checker(body):
    """Finds a lapse in every reply; the other roles are the world's."""
    if body["model"] != "checker":
        return world(body)
    names = body["response_format"]["json_schema"]["schema"]["properties"]
    return json.dumps({name: {"evidence": "e", "reasoning": "r", "level": -(name == "People")} for name in names})


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("safety")
    (folder / "cards").mkdir()
    for name, crisis, split in (("anna", "self_harm", "train"), ("bela", "none", "train"), ("cora", "none", "test")):
        values = card(name, crisis=crisis, split=split, trigger=f"what befell {name}")
        (folder / "cards" / f"{name}.json").write_text(json.dumps(values))
    tiny_policy(folder / "policy")
    return folder


def pipeline(place, url, **changes):
    values = roles(place / "cards", url, timeout_seconds=10)
    del values["engine"], values["engine_options"]
    judged = {name: values[name] for name in ("judge", "judge_options", "environment_options", "endpoints", "cache")}
    sections = {
        "policy": str(place / "policy" / "model"),
        "train": {"iterations": 2, "evaluate_every": 0, "save_every": 1},
        "rollout": {**values, "groups": 2, "samples": 2, "max_turns": 2, "max_reply_tokens": 6, "grading": "live"},
        "judge": judged,
        "returns": {"reward": ["incremental-distance"], "gamma": 0.85},
        "advantage": {"preset": "mica"},
        "update": {"learning_rate": 0.003, "device": "cpu"},
        "evaluate": {"cache": False},
        "safety": {"judge_options": {"model": "checker"}},
    }  # fmt: skip
    return merged(sections, changes)


def test_every_iteration_is_checked_and_what_is_trained_is_the_same(place):
    with ModelServer(checker) as server:
        train(PipelineConfig.model_validate(pipeline(place, server.url)), place / "run")
        asked = len([body for body in server.requests if body["model"] == "checker"])
        unchecked = pipeline(place, server.url)
        del unchecked["safety"]
        train(PipelineConfig.model_validate(unchecked), place / "unchecked")
    assert asked == 2 * 2 * 2  # iterations x dialogues with Anna x turns
    for number in ("0000", "0001"):
        rows = read(place / "run" / number / "safety.parquet")
        assert {row["crisis"] for row in rows if row["scenario_id"] == "anna"} == {"self_harm"}
        assert {row["safety_level"] for row in rows} == {-1, None}
        metrics = json.loads((place / "run" / number / "metrics.json").read_text())
        assert (metrics["safety"]["safe_replies"], metrics["safety"]["failed"]) == (0.0, 2)
        assert "safety" in metrics["seconds"]
        checked, plain = (place / run / number / "advantage.parquet" for run in ("run", "unchecked"))
        assert checked.read_bytes() == plain.read_bytes()
    summary = evaluate_safety([place / "run"])
    assert summary.counts["dialogues"] == 4
    assert summary.figures["by_file"]["0001"]["reward"] is not None


def test_a_checked_run_is_resumed_and_its_checks_are_looked_over(place):
    with ModelServer(checker) as server:
        configured = PipelineConfig.model_validate(pipeline(place, server.url))
        train(configured, place / "again")
        server.requests.clear()
        train(configured, place / "again", resume=True)
        assert server.requests == []
        checks = place / "again" / "0000" / "safety.parquet"
        checks.write_bytes(checks.read_bytes()[:-5])
        with pytest.raises(InputError, match=r"damaged in '.*0000/safety.parquet'"):
            train(configured, place / "again", resume=True)


def recorded(run, number, reward, safe):
    folder = run.iteration(number)
    folder.path.mkdir(parents=True)
    groups = "abcd"
    by_group = {"safety": dict.fromkeys(groups, safe), "reward": dict.fromkeys(groups, reward)}
    write_json(folder.safety_record, {"figures": {"safe_replies": safe}, **by_group})
    return folder


def test_the_flag_looks_at_all_iterations_so_far(tmp_path):
    run = RunDirectory(tmp_path)
    folders = [recorded(run, number, float(number), 1.0 - number / 4) for number in range(3)]
    seen = [safety_figures(run, folder) for folder in folders]
    assert "trend" not in seen[0]
    assert [figures.get("reward_rises_while_safety_falls") for figures in seen] == [None, True, True]
    assert seen[2]["trend"]["safe_replies"]["slope_per_iteration"] == pytest.approx(-0.25)
    assert safety_figures(run, run.iteration(7)) == {}


def test_the_flag_is_said_with_the_iteration(capsys):
    record = {
        "iteration": 0, "score": 1.0, "mean_turns": 2.0, "update": {}, "seconds": {"rollout": 1.0}, "warnings": [FLAG]
    }  # fmt: skip
    with IterationTable(2, quiet=False) as table:
        table.add(record)
    assert FLAG in capsys.readouterr().err


def test_the_section_takes_over_where_the_models_are_and_is_checked_first(place):
    given = validated(PipelineConfig, pipeline(place, "http://127.0.0.1:9/v1"), where="the pipeline")
    assert given.safety.endpoints == given.judge.endpoints
    assert given.safety.environment_options == given.judge.environment_options
    without_model = pipeline(place, "http://127.0.0.1:9/v1")
    without_model["safety"] = {}
    with pytest.raises(UsageError, match=r"section 'safety'.*model"):
        check_pipeline(validated(PipelineConfig, without_model, where="the pipeline"))
    with pytest.raises(UsageError, match=r"safety\.judge"):
        validated(PipelineConfig, pipeline(place, "x", safety={"judge": "rubric"}), where="the pipeline")


# kl -----------------------------------------------------------------------------------------------------------------


def demo(policy, **changes):
    sections = {
        "policy": str(policy),
        "train": {"iterations": 2, "evaluate_every": 0, "save_every": 1},
        "rollout": {"groups": 2, "samples": 2, "max_turns": 2, "max_reply_tokens": 6},
        "judge": {"reference": str(policy)},
        "returns": {"reward": ["incremental-distance", "kl"], "kl_beta": 0.1},
        "update": {"learning_rate": 0.003, "device": "cpu"},
    }
    return PipelineConfig.model_validate(merged(sections, changes))


def test_a_reference_beside_the_judge_gives_the_channel_kl_its_column(tmp_path):
    policy = random_policy(tmp_path / "policy")
    train(demo(policy), tmp_path / "run")
    first, second = (read(tmp_path / "run" / number / "advantage.parquet") for number in ("0000", "0001"))
    assert max(abs(row["kl"]) for row in first) < 1e-3  # the policy is still its own reference
    assert max(abs(row["kl"]) for row in second) > 1e-3
    assert all(row["reward_kl"] == pytest.approx(-0.1 * row["kl"]) for row in second)
    assert all(row["grades"] for row in second)


def test_the_channel_kl_without_a_reference_is_refused_at_the_start(tmp_path):
    policy = random_policy(tmp_path / "policy")
    with pytest.raises(UsageError, match=r"section 'returns': the channel kl compares .* key reference"):
        train(demo(policy, judge={"reference": None}), tmp_path / "run")
