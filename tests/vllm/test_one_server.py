"""One server plays policy, actor, director and judge: rollout, judge, returns, advantage, update, delivery, rollout."""

import json

import pytest
from tests.support_cards import card
from tests.support_world import write_cards
from tests.trajectory_files import read
from tests.vllm.models import engine_options, tiny

from dialrl.config import validated
from dialrl.endpoint.served import resolved
from dialrl.engine.vllm_process import answers
from dialrl.errors import UsageError
from dialrl.model.digest import policy_digest
from dialrl.model.loading import load_tokenizer
from dialrl.train.config import PipelineConfig
from dialrl.train.loop import train

LONGEST = 300


def pipeline(place, policy):
    """Every role at the policy's own server; the judge's strings end soon, which a random model's would not."""
    quote = load_tokenizer(policy).convert_tokens_to_ids('"')
    environment = {
        "cards": str(place / "cards"),
        "actor": {"model": "policy", "max_tokens": 24},
        "director": {"model": "policy", "max_tokens": 400},
    }
    roles = {
        "environment_options": environment,
        "endpoints": {"default": {"base_urls": ["vllm:policy"], "timeout_seconds": 240}},
        "call_timeout_seconds": 280,
        "cache": False,
    }
    judge = {"model": "policy", "max_tokens": 6000, "temperature": 1.0, "extra": {"logit_bias": {str(quote): 8}}}
    return {
        "policy": str(policy),
        "train": {"iterations": 2, "evaluate_every": 0, "save_every": 1},
        "rollout": {
            **roles, "environment": "support", "engine": "vllm", "groups": 2, "samples": 2, "max_turns": 2,
            "max_reply_tokens": 12, "engine_options": engine_options(log=str(place / "server.log")),
            "template_options": {"enable_thinking": False},
        },
        "judge": {**roles, "judge": "rubric", "judge_options": judge},
        "returns": {"reward": ["incremental-distance"], "gamma": 0.85},
        "advantage": {"preset": "mica"},
        "update": {"learning_rate": 0.01, "device": "cpu"},
        "evaluate": {"samples": 1, "resamples": 20},
    }  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    place = tmp_path_factory.mktemp("run")
    write_cards(place / "cards", 3)
    held_out = card("held-out", split="test", trigger="quite another story")
    (place / "cards" / "test.json").write_text(json.dumps(held_out))
    policy = tiny(place / "policy")
    messages = []
    progress = type(
        "Said", (), {"start": _nothing, "advance": _nothing, "message": lambda self, text: messages.append(text)}
    )
    values = validated(PipelineConfig, pipeline(place, policy), where="the pipeline")
    train(values, place / "run", progress=progress())
    return place / "run", policy, messages


def _nothing(self, *values, **figures):
    pass


def test_the_next_rollout_speaks_with_the_weights_of_the_update_before_it(run):
    place, policy, _ = run
    first, second = (read(place / number / "rollout.parquet") for number in ("0000", "0001"))
    updated = json.loads((place / "0000" / "policy" / "manifest.json").read_text())["digest"]
    assert {row["policy_digest"] for row in first} == {policy_digest(policy)}
    assert {row["policy_digest"] for row in second} == {updated}
    assert updated == policy_digest(place / "0000" / "policy" / "model") != policy_digest(policy)
    assert {row["policy_step"] for row in second} == {1}


def test_sampler_and_trainer_agree_in_every_update(run):
    place, _, _ = run
    for number in ("0000", "0001"):
        steps = [json.loads(line) for line in (place / number / "policy" / "metrics.jsonl").read_text().splitlines()]
        assert steps
        assert steps[0]["mismatch_mean"] < 1e-3


def test_the_rung_in_use_is_said_and_stands_in_the_metrics(run):
    place, _, messages = run
    assert any(text.startswith("delivery by reload: works") for text in messages)
    assert any("delivery by transfer: not tried (needs a CUDA device" in text for text in messages)
    assert any("delivered by reload" in text for text in messages)
    metrics = json.loads((place / "0001" / "metrics.json").read_text())
    assert metrics["delivery"]["rung"] == "reload"
    assert metrics["delivery"]["difference"] < 1e-3
    assert metrics["delivery"]["dropped"] == {}


def test_all_roles_were_played_and_every_turn_was_graded_in_the_schema(run):
    place, _, _ = run
    rows = [row for number in ("0000", "0001") for row in read(place / number / "advantage.parquet")]
    assert {use["role"] for row in rows for use in row["usage"]} >= {"policy", "actor", "director", "judge"}
    assert {row["judge_status"] for row in rows} == {"ok"}
    texts = [grade[name] for row in rows for grade in row["grades"] for name in ("evidence", "reasoning")]
    assert all(len(text or "") <= LONGEST for text in texts)
    assert any(row["director"] for row in rows)
    assert len(rows) >= 8


def test_the_server_is_gone_with_the_run(run):
    with pytest.raises(UsageError, match="running are: none"):
        resolved("vllm:policy")
    log = (run[0].parent / "server.log").read_text()
    port = int(log.split("Starting vLLM server on http://127.0.0.1:")[1].split()[0])
    assert not answers(f"http://127.0.0.1:{port}/health")
