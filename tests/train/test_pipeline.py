"""A pipeline file: sections, what an evaluation takes over, and what a resumed run may not change."""

import pytest

from dialrl.config import differing_keys
from dialrl.errors import UsageError
from dialrl.train.config import PipelineConfig, read_pipeline


def pipeline(**sections):
    return PipelineConfig.model_validate(sections)


def write(tmp_path, text):
    (tmp_path / "p.yaml").write_text(text)
    return tmp_path / "p.yaml"


def test_an_empty_file_is_no_pipeline(tmp_path):
    with pytest.raises(UsageError, match=r"p\.yaml' is empty\. .* extends: demo\.yaml"):
        read_pipeline(write(tmp_path, "# nothing yet\n"))
    assert read_pipeline(write(tmp_path, "extends: demo.yaml")).policy == "demo-policy"


def test_null_takes_back_what_extends_brings(tmp_path):
    (tmp_path / "base.yaml").write_text(
        "rollout: {groups: 3, template_options: {chat_template: plain},"
        " environment_options: {actor: {model: m, extra: {chat_template: plain}}}}\n"
        "reward_model: {update: {mini_batch_dialogues: 8}}"
    )
    taken = "groups: null, template_options: null, environment_options: {actor: {extra: null}}"
    found = read_pipeline(write(tmp_path, f"extends: base.yaml\nrollout: {{{taken}}}"))
    assert (found.rollout.groups, found.rollout.template_options) == (16, {})
    assert found.rollout.environment_options == {"actor": {"model": "m"}}
    without = read_pipeline(write(tmp_path, "extends: base.yaml\nreward_model: null"))
    assert without.reward_model is None
    all_at_once = "extends: base.yaml\nreward_model: {update: {mini_batch_dialogues: null}}"
    assert read_pipeline(write(tmp_path, all_at_once)).reward_model.update.mini_batch_dialogues is None


def test_an_evaluation_runs_as_the_training_does_unless_it_says_otherwise():
    found = pipeline(
        rollout={"max_turns": 3, "max_reply_tokens": 9, "samples": 16, "seed": 7},
        judge={"judge_options": {"noise": 0.1}, "stop": {"min_turns": 2}},
        evaluate={"max_reply_tokens": 50},
    ).evaluate
    assert (found.max_turns, found.max_reply_tokens, found.judge_options) == (3, 50, {"noise": 0.1})
    assert found.stop.min_turns == 2
    assert (found.samples, found.seed, found.split) == (2, 1_000_003, "test")


def test_sections_of_a_file_and_changes_on_top(tmp_path):
    path = write(tmp_path, "train: {iterations: 9, keep_last: 3}\nreturns: {gamma: 0.5}")
    found = read_pipeline(path, {"train": {"iterations": 4}, "policy": "x"})
    assert (found.train.iterations, found.train.keep_last, found.returns.gamma, found.policy) == (4, 3, 0.5, "x")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("retuns: {}", "unknown key 'retuns'. Did you mean 'returns'?"),
        ("train: {iteration: 1}", "unknown key 'train.iteration'. Did you mean 'iterations'?"),
        ("rollout: {stop: {min_turn: 1}}", "unknown key 'rollout.stop.min_turn'. Did you mean 'min_turns'?"),
        ("train: {iterations: 0}", "train.iterations: Input should be greater than or equal to 1"),
        ("evaluate: 3", "evaluate"),
    ],
)
def test_a_wrong_key_or_value_is_named(tmp_path, text, sentence):
    with pytest.raises(UsageError) as refused:
        read_pipeline(write(tmp_path, text))
    assert sentence in str(refused.value)


def differences(before, after):
    return differing_keys(pipeline(**before).identity(), pipeline(**after).identity())


def test_everything_semantic_belongs_to_a_runs_identity_and_nothing_operational():
    assert differences({}, {"rollout": {"seed": 1}, "update": {"learning_rate": 1e-3}}) == [
        "rollout.seed: 0 -> 1",
        "update.learning_rate: 1e-06 -> 0.001",
    ]
    assert differences({}, {"policy": "x"}) == ["policy: 'demo-policy' -> 'x'"]
    operational = {"train": {"save_every": 1, "keep_last": 9}, "judge": {"concurrency": 1}, "update": {"device": "cpu"}}
    assert differences({}, operational) == []


def test_a_run_may_grow_longer_unless_the_learning_rate_looks_at_its_end():
    assert differences({}, {"train": {"iterations": 90}}) == []
    for update in ({"schedule": "linear"}, {"warmup_steps": 3}):
        assert differences({"update": update}, {"update": update, "train": {"iterations": 90}}) == [
            "train.iterations: 60 -> 90"
        ]
