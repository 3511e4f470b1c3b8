"""Training on the environment support: actor, director and judge behind an endpoint that fails at times."""

import json

import pytest
from tests.model_server import ModelServer, at_random
from tests.support_cards import card
from tests.support_world import pipeline as roles
from tests.support_world import world, write_cards
from tests.toys import tiny_policy
from tests.trajectory_files import read

from dialrl.config import validated
from dialrl.errors import UsageError
from dialrl.train.config import PipelineConfig
from dialrl.train.loop import train


def pipeline(place, url, **rollout):
    values = roles(place / "cards", url, timeout_seconds=2)
    del values["engine"], values["engine_options"]
    judged = {name: values[name] for name in ("judge", "judge_options", "environment_options", "endpoints", "cache")}
    return {
        "policy": str(place / "policy" / "model"),
        "train": {"iterations": 2, "evaluate_every": 2, "save_every": 1},
        "rollout": {
            **values, "groups": 2, "samples": 2, "max_turns": 2, "max_reply_tokens": 6, "grading": "live", **rollout
        },
        "judge": judged,
        "returns": {"reward": ["incremental-distance"], "gamma": 0.85},
        "advantage": {"preset": "mica"},
        "update": {"learning_rate": 0.003, "device": "cpu"},
        "evaluate": {"samples": 1, "resamples": 20, "cache": False},
    }  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("support")
    write_cards(folder / "cards", 3)
    held_out = card("held-out", split="test", trigger="quite another story")
    (folder / "cards" / "test.json").write_text(json.dumps(held_out))
    tiny_policy(folder / "policy")
    return folder


def test_the_loop_runs_on_models_behind_an_endpoint_and_trains_what_was_graded(place):
    with ModelServer(world, faults=at_random(0.05, seed=4)) as server:
        train(PipelineConfig.model_validate(pipeline(place, server.url)), place / "run")
    first, second = (read(place / "run" / number / "advantage.parquet") for number in ("0000", "0001"))
    assert {row["environment"] for row in first} == {"support"}
    assert first[0]["policy_digest"] != second[0]["policy_digest"]
    graded = [row for row in first if row["judge_status"] == "ok"]
    assert graded
    assert all(row["reward"] is not None and row["reply_ids"] for row in graded)
    assert {use["role"] for row in first for use in row["usage"]} == {"policy", "actor", "director", "judge"}
    assert not [body for body in server.requests if body["model"] == "policy"]  # it is drawn from in process


def test_the_split_that_is_evaluated_on_is_not_trained_on(place):
    with pytest.raises(UsageError, match="cannot be tested on"):
        validated(PipelineConfig, pipeline(place, "http://127.0.0.1:9/v1", split="test"), where="the pipeline")
