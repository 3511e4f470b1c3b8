"""A run that trains a LoRA adapter: each iteration's adapter goes to vLLM under a new name, the base stays."""

import json

import pytest
from tests.trajectory_files import read
from tests.vllm.models import engine_options, tiny

from dialrl.config import validated
from dialrl.model.digest import policy_digest
from dialrl.train.config import PipelineConfig
from dialrl.train.loop import train


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    place = tmp_path_factory.mktemp("run")
    policy = tiny(place / "policy")
    values = {
        "policy": str(policy),
        "train": {"iterations": 3, "evaluate_every": 0, "save_every": 1, "keep_last": 3},
        "rollout": {
            "engine": "vllm", "engine_options": engine_options(), "groups": 2, "samples": 3, "max_turns": 2,
            "max_reply_tokens": 8,
        },
        "returns": {"gamma": 0.85},
        "advantage": {"preset": "mica"},
        "update": {"learning_rate": 0.05, "lora_rank": 4, "lora_alpha": 8, "device": "cpu"},
    }  # fmt: skip
    train(validated(PipelineConfig, values, where="the pipeline"), place / "run")
    return place / "run", policy


def test_every_iteration_speaks_with_the_adapter_of_the_update_before_it(run):
    place, policy = run
    spoke = [policy_digest(policy)]
    for number in ("0000", "0001"):
        folder = place / number / "policy"
        assert json.loads((folder / "adapter" / "base.json").read_text())["digest"] == policy_digest(policy)
        spoke.append(json.loads((folder / "manifest.json").read_text())["digest"])
    rows = [read(place / number / "rollout.parquet") for number in ("0000", "0001", "0002")]
    assert [{row["policy_digest"] for row in part} for part in rows] == [{digest} for digest in spoke]
    assert len(set(spoke)) == 3


def test_adapters_are_delivered_as_adapters_and_sampler_and_trainer_agree(run):
    place, _ = run
    for number in ("0001", "0002"):
        delivery = json.loads((place / number / "metrics.json").read_text())["delivery"]
        assert (delivery["rung"], delivery["dropped"]) == ("lora", {})
        assert delivery["difference"] < 1e-3
        step = json.loads((place / number / "policy" / "metrics.jsonl").read_text().splitlines()[0])
        assert step["mismatch_mean"] < 1e-3
