"""The policy's files, template, log-probs and delivery, on a tiny random model with a Qwen3-style template."""

import json

import pytest
import torch
from tests.toys import CHATML, THINKING, tiny_policy

from dialrl.doctor import sampling
from dialrl.doctor.logprobs import Agreement
from dialrl.doctor.policy import find
from dialrl.doctor.stage import examine, subject_of
from dialrl.doctor.subject import Subject
from dialrl.doctor.template import examine_template
from dialrl.train.config import PipelineConfig
from dialrl.update.config import UpdateConfig


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    torch.set_num_threads(1)
    return tiny_policy(tmp_path_factory.mktemp("policy"), chat_template=THINKING)


def checked(subject):
    return {f"{check.area}: {check.name}": check for check in examine(subject).checks}


def pipeline(**rollout):
    return PipelineConfig.model_validate({"rollout": rollout})


def test_a_sound_policy_passes_from_files_to_delivery(policy):
    found = checked(Subject(policy=str(policy)))
    names = ["Policy: policy", "Policy: update", "Template: template", "Sampling: log-probs", "Sampling: delivery"]
    assert [found[name].status for name in names] == ["ok"] * 5
    compared = found["Sampling: log-probs"].details
    assert 3 * 2 <= compared["tokens"] <= 3 * 2 * 16
    assert compared["mean"] < 1e-5


def test_without_weights_nothing_is_loaded(policy):
    found = checked(Subject(policy=str(policy), weights=False))
    assert found["Sampling: log-probs"].status == "not applicable"
    assert found["Template: template"].status == "ok"


def spans(policy, **rollout):
    checks, _ = examine_template(Subject(pipeline(**rollout)), policy / "model")
    return next(check for check in checks if check.name == "trained").details["spans"]


def test_the_trained_spans_are_the_replies_with_their_end_of_turn(policy):
    found = spans(policy, template_options={"enable_thinking": False})
    assert [span["text"] for span in found if span["trained"]] == [
        "That sounds hard. Since when?<|im_end|>",
        "You miss him.<|im_end|>",
        "What do you miss most?<|im_end|>",
    ]
    assert found[0]["text"].startswith("<|im_start|>system\nYou listen.<|im_end|>\n<|im_start|>user\n")
    assert found[2]["text"].startswith("\n<|im_start|>user\nSince my brother left.")
    assert {span["segment"] for span in found} == {0}


def test_in_template_mode_an_empty_think_block_shows_a_segment_a_turn(policy):
    found = spans(policy, template_options={"enable_thinking": False}, history="template")
    assert [span["segment"] for span in found] == [0, 0, 1, 1, 2, 2]


def test_thoughts_that_the_template_strips_are_shown_trained_and_then_gone(policy):
    found = spans(policy)
    assert all("Ask first." in span["text"] for span in found if span["trained"])
    assert all("Ask first." not in span["text"] for span in found if not span["trained"])


def test_the_dearer_history_mode_is_a_warning_with_the_cheaper_one(policy):
    subject = Subject(pipeline(template_options={"enable_thinking": False}, history="template"))
    checks, _ = examine_template(subject, policy / "model")
    check = next(check for check in checks if check.name == "history")
    assert (check.status, check.details["template"]["segments"], check.details["append"]["segments"]) == (
        "warning",
        15,
        1,
    )
    assert "append is the probe's choice" in check.advice


def test_a_base_model_without_a_template_fails_and_names_the_shipped_one(tmp_path):
    place = tiny_policy(tmp_path, chat_template=CHATML)
    (place / "model" / "chat_template.jinja").unlink()
    found = checked(Subject(policy=str(place), weights=False))
    assert found["Template: template"].status == "failed"
    assert "chat_template=plain" in found["Template: template"].found
    options = {"chat_template": "plain"}
    found = checked(Subject(pipeline(template_options=options), policy=str(place), weights=False))
    assert found["Template: template"].status == "ok"
    assert "'\\n'" in found["Template: ends"].found


def test_a_name_that_was_never_fetched_is_a_warning_and_nothing_is_fetched(monkeypatch):
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: pytest.fail("fetched"))
    found = find(Subject(policy="nobody/no-such-model"))
    assert (found.checks[0].status, found.directory) == ("warning", None)
    assert "hf download nobody/no-such-model" in found.checks[0].advice


@pytest.mark.parametrize(("name", "fault"), [("nowhere", "is no directory"), ("empty", "is no policy")])
def test_what_is_no_policy_fails(tmp_path, name, fault):
    (tmp_path / "empty").mkdir()
    check = find(Subject(policy=str(tmp_path / name))).checks[0]
    assert (check.status, fault in check.found) == ("failed", True)


@pytest.mark.parametrize(
    ("mean", "precision", "status"),
    [
        (1e-6, "fp32", "ok"),
        (5e-3, "fp32", "warning"),
        (5e-3, "bf16", "ok"),
        (0.1, "bf16", "warning"),
        (2.0, "fp32", "failed"),
    ],
)
def test_how_far_sampler_and_trainer_may_differ(mean, precision, status):
    check = sampling._judged(Agreement(40, mean, 2 * mean), UpdateConfig(precision=precision))
    assert check.status == status


def test_a_sampler_of_other_weights_is_found_out(policy, tmp_path, monkeypatch):
    from dialrl.doctor.logprobs import trainer_model

    other = tiny_policy(tmp_path, seed=1, chat_template=THINKING)
    real = sampling.agreement
    broken = lambda model, *given, **named: real(trainer_model(other / "model", "cpu"), *given, **named)  # noqa: E731
    monkeypatch.setattr(sampling, "agreement", broken)
    check = checked(Subject(policy=str(policy)))["Sampling: log-probs"]
    assert check.status in ("warning", "failed")


def test_weights_that_do_not_fit_are_not_tried(policy, monkeypatch):
    monkeypatch.setattr("dialrl.doctor.policy.free_memory", lambda: 1000)
    monkeypatch.setattr(sampling, "open_policy", lambda *_, **__: pytest.fail("loaded"))
    found = checked(Subject(policy=str(policy)))
    assert found["Sampling: log-probs"].status == "warning"
    assert found["Policy: update"].status == "warning"


def test_a_pipeline_that_cannot_work_fails_by_its_section(tmp_path):
    (tmp_path / "p.yaml").write_text("returns: {reward: [outcom]}")
    found = checked(subject_of(tmp_path / "p.yaml", weights=False))
    assert found["Pipeline: settings"].status == "failed"
    assert "section 'returns'" in found["Pipeline: settings"].found


def test_every_finding_is_json(policy):
    whole = examine(Subject(policy=str(policy))).to_json()
    assert json.loads(json.dumps(whole, allow_nan=False))["ready"] is True
