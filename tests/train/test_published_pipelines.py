"""The pipelines that ship resolve, and hold the settings that were published."""

import json
from pathlib import Path

import pytest

from dialrl.train.check import check_pipeline
from dialrl.train.config import read_pipeline

FOLDER = Path(__file__).parents[2] / "pipelines"
QWEN3 = {"8b": "Qwen/Qwen3-8B", "14b": "Qwen/Qwen3-14B", "32b": "Qwen/Qwen3-32B"}


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.yaml")), ids=lambda file: file.stem)
def test_every_pipeline_that_ships_resolves(file):
    assert read_pipeline(file).policy


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.yaml")), ids=lambda file: file.stem)
def test_every_pipeline_that_ships_can_work(file, tmp_path, monkeypatch):
    """Given what its reader brings: a model (here the demo's), and questions where it names a file of them."""
    asked = [{"id": split, "question": "Who?", "answers": ["Ada"], "split": split} for split in ("train", "test")]
    (tmp_path / "questions.jsonl").write_text("\n".join(map(json.dumps, asked)))
    monkeypatch.chdir(tmp_path)
    check_pipeline(read_pipeline(file, {"policy": "demo-policy"}))


@pytest.mark.parametrize("size", QWEN3)
def test_qwen3_is_trained_and_evaluated_without_thinking_in_one_segment(size):
    found = read_pipeline(FOLDER / f"mica-qwen3-{size}.yaml")
    assert (found.policy, found.advantage.estimator) == (QWEN3[size], "mica")
    assert found.rollout.template_options == found.evaluate.template_options == {"enable_thinking": False}
    assert found.rollout.history == found.evaluate.history == "append"


@pytest.mark.parametrize(
    ("size", "prompts", "turns", "temperature"), [("8b", 16, 15, 1.0), ("14b", 16, 15, 1.0), ("32b", 32, 20, 0.8)]
)
def test_qwen3_has_the_published_settings(size, prompts, turns, temperature):
    found = read_pipeline(FOLDER / f"mica-qwen3-{size}.yaml")
    rollout, update = found.rollout, found.update
    assert (rollout.groups, rollout.samples, rollout.temperature) == (prompts, 4, temperature)
    assert rollout.environment_options["turn_limit"] == found.judge.environment_options["turn_limit"] == turns
    assert found.evaluate.environment_options["turn_limit"] == turns
    assert rollout.groups * rollout.samples == 2 * update.mini_batch_dialogues
    assert (update.learning_rate, update.clip_low, update.clip_high, update.kl_coefficient) == (1e-6, 0.2, 0.28, 0.0)
    assert (update.schedule, update.warmup_steps, found.train.iterations) == ("cosine", 5, 90)
    assert (update.weight_decay, update.max_gradient_norm, found.returns.gamma) == (0.1, 1.0, 0.85)


@pytest.mark.parametrize("size", QWEN3)
def test_the_other_roles_do_not_think_either(size):
    rollout = read_pipeline(FOLDER / f"mica-qwen3-{size}.yaml").rollout
    roles = [rollout.judge_options, *(rollout.environment_options[role] for role in ("actor", "director"))]
    assert [role["extra"] for role in roles] == [{"chat_template_kwargs": {"enable_thinking": False}}] * 3
