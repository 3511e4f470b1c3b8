"""IGPO from end to end: the loop over the environment search with the policy's own belief as credit."""

import json
import shutil

import pytest
from tests.toys import tiny_policy
from tests.trajectory_files import read

from dialrl.train.config import PipelineConfig
from dialrl.train.loop import train
from dialrl.trajectory.reader import TrajectoryFile
from run_contents import assert_equal_runs, contents

QUESTIONS = [
    {"id": f"{split}-{n}", "question": f"feeling {n}?", "answers": ["exam", "the brother"], "split": split}
    for split in ("train", "test")
    for n in range(2)
]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("search")
    (folder / "q.jsonl").write_text("".join(json.dumps(question) + "\n" for question in QUESTIONS))
    tiny_policy(folder / "policy")
    return folder


def pipeline(place, **judge):
    options = {
        "questions": str(place / "q.jsonl"),
        "retriever": "scripted",
        "system_prompt": "",
        "turn_limit": 3,
        "max_repairs": 9,
    }
    return PipelineConfig.model_validate(
        {
            "policy": str(place / "policy" / "model"),
            "train": {"iterations": 2, "evaluate_every": 2, "save_every": 1, "keep_last": 2},
            "rollout": {
                "environment": "search", "environment_options": options, "groups": 2, "samples": 2,
                "max_reply_tokens": 6, "block_dialogues": 4,
            },
            "judge": {"judge": "information-gain", "environment_options": options, "judge_options": judge},
            "returns": {"reward": ["information-gain", "outcome", "format"], "gamma": 1.0},
            "advantage": {"preset": "igpo"},
            "update": {"learning_rate": 0.003, "device": "cpu"},
            "evaluate": {"samples": 1, "resamples": 20},
        }
    )  # fmt: skip


@pytest.fixture(scope="module")
def unbroken(place):
    train(pipeline(place), place / "run")
    return place / "run"


def test_each_turn_is_credited_by_its_own_gain(unbroken):
    rows = read(unbroken / "0001" / "advantage.parquet")
    assert {row["reward_information-gain_status"] for row in rows} == {"known"}
    assert len({row["advantage"] for row in rows}) > len(rows) // 2
    for row in rows:
        assert row["reward_information-gain"] == row["belief_after"] - row["belief_before"]


def test_the_scorer_is_the_policy_of_the_iteration(unbroken):
    digests = []
    for number in ("0000", "0001"):
        file = TrajectoryFile.open(unbroken / number / "judge.parquet")
        digests.append(file.lineage.record("judge").details["scorer_digest"])
        assert {row["policy_digest"] for row in file.read().to_pylist()} == {digests[-1]}
    assert digests[0] != digests[1]


def test_evaluation_is_by_outcome(unbroken):
    found = json.loads((unbroken / "0001" / "evaluation.json").read_text())
    assert (found["measure"], found["score"], found["counts"]["dialogues"]) == ("outcome", 0.0, 2)


def test_a_frozen_scorer_is_the_policy_the_run_starts_from(place, unbroken):
    train(pipeline(place, scorer="frozen"), place / "frozen")
    details = [
        TrajectoryFile.open(place / run / number / "judge.parquet").lineage.record("judge").details["scorer_digest"]
        for run, number in (("run", "0000"), ("frozen", "0000"), ("frozen", "0001"))
    ]
    assert len(set(details)) == 1


def test_a_run_that_lost_its_second_iteration_is_resumed_to_the_same_files(place, unbroken, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(unbroken, copy)
    shutil.rmtree(copy / "0001")
    train(pipeline(place), copy, resume=True)
    assert_equal_runs(copy, contents(unbroken))
