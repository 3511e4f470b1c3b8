"""Endpoints as a server of the tests shows them: reached, known, and able or not to do what a role needs."""

import json

import pytest
from tests.model_server import ModelServer

from dialrl.doctor import endpoints as module
from dialrl.doctor.endpoints import endpoints
from dialrl.doctor.subject import Subject
from dialrl.train.config import PipelineConfig

KEY = "sk-not-to-be-shown"
IDS = {
    "choices": [{"token_ids": [5], "logprobs": {"token_logprobs": [-0.5]}, "finish_reason": "length"}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1},
}


def answer(body):
    """A server of one model that can do everything."""
    if not body:
        return {"data": [{"id": "the-model"}]}
    if "prompt" in body:
        return IDS
    if "tools" in body:
        return {"role": "assistant", "tool_calls": [{"function": {"name": "observe", "arguments": "{}"}}]}
    if "response_format" in body:
        return json.dumps({"level": 1})
    return "Hello."


def support(url, model="the-model", **rollout):
    roles = {"actor": {"model": model}, "director": {"model": model}}
    sections = {
        "environment": "support",
        "environment_options": roles,
        "grading": "live",
        "judge": "rubric",
        "judge_options": {"model": model},
        "endpoints": {"default": {"base_urls": [url], "backoff_seconds": 0.01, "timeout_seconds": 5}},
        **rollout,
    }
    return Subject(PipelineConfig.model_validate({"rollout": sections}))


def statuses(checks):
    return {check.name: check.status for check in checks}


def test_without_roles_there_is_nothing_to_reach():
    assert statuses(endpoints(Subject())) == {"roles": "not applicable"}


def test_every_role_is_asked_for_what_it_needs():
    with ModelServer(answer) as server:
        checks = endpoints(support(server.url, engine="openai", engine_options={"model": "the-model"}))
    assert statuses(checks) == dict.fromkeys(
        ["policy", "policy ids", "actor", "actor call", "director", "director call", "judge", "judge call"], "ok"
    )


def test_a_given_address_lists_its_models_and_says_whether_it_can_be_trained_on():
    with ModelServer(answer) as server:
        found = endpoints(Subject(endpoints=(server.url,)))
        assert statuses(found) == {"given": "ok", "given ids": "ok"}
        assert "serves the-model" in found[0].found
    with ModelServer(lambda body: answer(body) if not body else {"choices": [{"text": "x"}]}) as server:
        found = endpoints(Subject(endpoints=(server.url,)))
    assert statuses(found) == {"given": "ok", "given ids": "warning"}
    assert "evaluated, not trained" in found[1].found


def test_an_unknown_model_fails_and_the_nearest_is_named():
    with ModelServer(answer) as server:
        found = endpoints(support(server.url, model="the-modle"))
    assert set(statuses(found).values()) == {"failed"}
    assert "Did you mean 'the-model'?" in found[0].advice


def test_a_key_is_told_by_name_and_never_by_value(monkeypatch):
    monkeypatch.setenv("MY_KEY", KEY)
    with ModelServer(answer, faults=lambda number, body: "401") as server:
        default = {"base_urls": [server.url], "api_key_env": "MY_KEY"}
        found = endpoints(support(server.url, endpoints={"default": default}))
        assert server.headers[0]["authorization"] == f"Bearer {KEY}"
    assert "refuses the key (set MY_KEY); key MY_KEY set" in found[0].found
    assert all(KEY not in repr(check) for check in found)


def test_nobody_listening_fails_with_what_to_do():
    found = endpoints(support("http://127.0.0.1:9/v1"))
    assert set(statuses(found).values()) == {"failed"}
    assert "nobody answers" in found[0].found
    assert "Start the server" in found[0].advice


@pytest.mark.parametrize(
    ("said", "name", "fault"),
    [
        (lambda body: "I would say 2." if "response_format" in body else answer(body), "judge call", "not in JSON"),
        (lambda body: '{"level": 9}' if "response_format" in body else answer(body), "judge call", "level 9"),
        (lambda body: "observe" if "tools" in body else answer(body), "director call", "calls no tool"),
        (lambda body: answer(body) if not body or len(body) > 5 else "<think>Hm", "actor call", "thinks aloud"),
    ],
)
def test_an_answer_that_would_not_do_is_a_warning(said, name, fault):
    with ModelServer(said) as server:
        found = {check.name: check for check in endpoints(support(server.url))}
    assert found[name].status == "warning"
    assert fault in found[name].found


def own(address, model="the-model"):
    return endpoints(support(address, model=model))


def test_a_server_that_the_run_itself_starts_is_not_asked():
    assert set(statuses(own("vllm:policy")).values()) == {"not applicable"}


def test_a_model_that_the_run_itself_loads_must_be_there_and_be_called_so(tmp_path, monkeypatch):
    (tmp_path / "the-model").mkdir()
    address = f"hf:{tmp_path}/the-model"
    monkeypatch.setattr(module, "can_constrain", lambda: True)
    assert set(statuses(own(address)).values()) == {"ok"}
    assert set(statuses(own(address, model="another")).values()) == {"failed"}
    assert set(statuses(own(f"hf:{tmp_path}/nowhere")).values()) == {"failed"}
    monkeypatch.setattr(module, "can_constrain", lambda: False)
    assert statuses(own(address)) == {"actor": "ok", "director": "warning", "judge": "warning"}
