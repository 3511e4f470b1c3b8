"""A policy behind an endpoint: ids and log-probs where it gives them, text that is only evaluated where it does not."""

import asyncio

import pytest
from tests.model_server import ModelServer
from tests.scripted import settings
from tests.trajectory_files import read

from dialrl.endpoint.calls import ModelCalls
from dialrl.endpoint.failure import ModelCallError
from dialrl.endpoint.settings import EndpointSettings, ModelSettings
from dialrl.engine.base import GenerationRequest, SamplingSettings
from dialrl.engine.openai import OpenAIEngine, engine_settings, read_completion
from dialrl.engine.openai_probe import gives_token_ids
from dialrl.errors import EngineError, InputError, RunError, UsageError
from dialrl.model.template import ChatTemplate
from dialrl.rollout.policy import open_policy
from dialrl.rollout.stage import Policy, roll_out
from dialrl.testing import CharacterTokenizer

TOKENS = CharacterTokenizer()


@pytest.fixture(autouse=True)
def _scripted(monkeypatch):
    from tests.scripted import register

    register(monkeypatch)


def completion(body):
    """A vLLM-style answer: "So?" and the end of turn, a log-prob each."""
    ids = [*TOKENS.encode("So?"), TOKENS.eos_token_id][: body["max_tokens"]]
    choice = {"token_ids": ids, "logprobs": {"token_logprobs": [-0.25] * len(ids)}, "finish_reason": "stop"}
    return {"choices": [choice], "usage": {"prompt_tokens": len(body["prompt"]), "completion_tokens": len(ids)}}


def endpoint(server, **options):
    values = {"base_urls": [server.url], "timeout_seconds": 1, "backoff_seconds": 0.01, "attempts": 3, **options}
    return {"policy": EndpointSettings(**values)}


def rolled_out(server, path, mode, **options):
    template = ChatTemplate(TOKENS) if mode == "ids" else None
    engine = OpenAIEngine(ModelSettings(model="m"), mode, "endpoint:m")
    policy = Policy(engine, template, engine.policy_digest)
    summary = roll_out(policy, path, settings(2, 2, endpoints=endpoint(server), **options))
    return read(path), summary


def test_ids_and_logprobs_are_stored_as_they_came(tmp_path):
    with ModelServer(completion) as server:
        rows, summary = rolled_out(server, tmp_path / "r.parquet", "ids", temperature=0.7)
    first = rows[0]
    assert TOKENS.decode(first["reply_ids"]) == "So?<|end|>"
    assert first["reply_logprobs"] == [-0.25] * 4
    assert first["reply"] == "So?"
    assert server.requests[0]["prompt"] == first["prompt_ids"]
    assert (server.requests[0]["temperature"], server.requests[0]["return_token_ids"]) == (0.7, True)
    assert "top_p" not in server.requests[0]
    assert summary.figures["calls"]["policy"]["calls"] == len(rows)


def test_text_alone_leaves_the_ids_null_and_update_refuses_the_file(tmp_path):
    from dialrl.update.turns import Turn, check_trained

    def reply(body):
        return f"I see {body['seed']}."

    with ModelServer(reply) as server:
        rows, summary = rolled_out(server, tmp_path / "r.parquet", "chat")
    assert [row["reply_ids"] for row in rows] == [row["prompt_ids"] for row in rows] == [None] * len(rows)
    assert rows[0]["reply"].startswith("I see ")
    assert rows[0]["usage"][0] == {
        "role": "policy", "prompt_tokens": 100, "cached_tokens": 40, "completion_tokens": 10
    }  # fmt: skip
    assert [message["role"] for message in server.requests[-1]["messages"]][:2] == ["user", "assistant"]
    assert summary.counts["duplicate_dialogues"] == 0
    where = "dialogue 'g/0', turn 0"
    turn = dict.fromkeys(Turn.__dataclass_fields__) | {"where": where, "advantage": 1.0}
    stub = type("TextTurn", (), turn)()
    with pytest.raises(InputError, match="evaluated, not trained"):
        check_trained(stub)


def test_auto_asks_the_endpoint_once_what_it_gives():
    with ModelServer(completion) as gives, ModelServer(lambda body: {"choices": [{"text": "So"}]}) as gives_not:
        model = ModelSettings(model="m")
        assert gives_token_ids(model, endpoint(gives)["policy"])
        assert not gives_token_ids(model, endpoint(gives_not)["policy"])


def probed(body):
    """Text for chats; a probe for ids gets none."""
    return "Hm." if "messages" in body else {"choices": [{"text": "So"}], "usage": {"prompt_tokens": 7}}


def continued(server, path, *, resume):
    """A rollout whose engine finds out for itself what the endpoint gives."""
    opened = open_policy("m", engine="openai", endpoints=endpoint(server), continued=path if resume else None)
    return roll_out(opened, path, settings(2, 2, endpoints=endpoint(server)), resume=resume)


def test_what_the_endpoint_gives_is_asked_once_for_an_output_however_often_it_is_resumed(tmp_path):
    # The third reply dies with the process; probes carry a prompt of ids.
    path = tmp_path / "r.parquet"
    with ModelServer(probed, faults={3: "401"}) as server, pytest.raises(RunError, match="refuses the key"):
        continued(server, path, resume=False)
    assert [("prompt" in body) for body in server.requests].count(True) == 1
    with ModelServer(probed) as server:
        summary = continued(server, path, resume=True)
    assert not [body for body in server.requests if "prompt" in body]
    assert summary.figures["calls"]["policy"]["replayed"] >= 1


def test_an_endpoint_that_knows_no_ids_is_remembered_too(tmp_path):
    path = tmp_path / "r.parquet"

    def faults(number, body):
        return "404" if "prompt" in body else "401" if number == 3 else None

    with ModelServer(probed, faults=faults) as server, pytest.raises(RunError, match="refuses the key"):
        continued(server, path, resume=False)
    with ModelServer(probed) as server:
        continued(server, path, resume=True)
    assert not [body for body in server.requests if "prompt" in body]


def test_the_tokens_of_the_question_are_booked_with_the_rest(tmp_path):
    with ModelServer(probed) as server:
        summary = continued(server, tmp_path / "r.parquet", resume=False)
    chats = len(server.requests) - 1
    assert summary.figures["calls"]["policy"]["calls"] == chats + 1
    assert summary.figures["calls"]["policy"]["prompt_tokens"] == 100 * chats + 7


def test_a_model_that_is_a_mere_name_is_opened_by_text():
    with ModelServer(lambda body: "Hm.", faults=lambda number, body: "401") as server:
        opened = open_policy("some-model", engine="openai", endpoints=endpoint(server))
    assert opened.template is None
    assert opened.digest == "endpoint:some-model"


def test_a_request_that_fails_for_good_breaks_its_dialogue_alone(tmp_path):
    def faults(number, body):
        return "400" if "Go on." in str(body.get("messages")) and body["seed"] % 2 else None

    with ModelServer(lambda body: "Yes.", faults=faults) as server:
        rows, summary = rolled_out(server, tmp_path / "r.parquet", "chat", attempts=1, max_failed=1.0)
    broken = {row["dialogue_id"] for row in rows if row["status"] == "error"}
    assert len(broken) == summary.counts["failed_dialogues"] > 0
    assert all("http_400" in row["error"] for row in rows if row["error"])


def test_an_endpoint_that_refuses_everything_ends_the_rollout(tmp_path):
    with ModelServer(completion, faults=lambda n, body: "401") as server, pytest.raises(RunError, match="refuses"):
        rolled_out(server, tmp_path / "r.parquet", "chat")
    assert not (tmp_path / "r.parquet").exists()


@pytest.mark.parametrize(
    "change",
    [{"token_ids": None}, {"token_ids": [1, 2]}, {"token_ids": [True]}, {"logprobs": None},
     {"logprobs": {"token_logprobs": [None]}}, {"finish_reason": "content_filter"}],
)  # fmt: skip
def test_ids_and_logprobs_are_one_for_each_other_or_the_call_has_failed(change):
    choice = {"token_ids": [5], "logprobs": {"token_logprobs": [-1.0]}, "finish_reason": "stop"}
    assert read_completion({"choices": [choice]}, prompt_tokens=3).reply_ids == [5]
    with pytest.raises(ModelCallError, match="bad_response"):
        read_completion({"choices": [{**choice, **change}]}, prompt_tokens=3)


def test_options_that_do_not_exist_are_refused():
    with pytest.raises(UsageError, match="modle"):
        engine_settings({"modle": "x"}, "p")
    with pytest.raises(UsageError, match="auto, ids or chat"):
        engine_settings({"mode": "text"}, "p")


def test_out_of_place_calls_are_errors(tmp_path):
    engine = OpenAIEngine(ModelSettings(model="m"), "chat", "endpoint:m")
    with pytest.raises(RunError, match="stream"):
        engine.generate_block([], SamplingSettings())
    with pytest.raises(UsageError, match="cannot give new weights"):
        engine.load_weights(tmp_path)
    with pytest.raises(RunError, match="connect"):
        asyncio.run(engine.generate(GenerationRequest([], 0), SamplingSettings()))
    engine.connect(ModelCalls())
    with pytest.raises(RunError, match="outside"):
        asyncio.run(engine.generate(GenerationRequest([], 0), SamplingSettings()))
    assert issubclass(EngineError, RunError)
