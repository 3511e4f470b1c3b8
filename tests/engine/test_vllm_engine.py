"""The engine vllm around a pretended server: where requests go, and what is said when the server is gone."""

import asyncio
from types import SimpleNamespace

import pytest
from tests.model_server import ModelServer

from dialrl.endpoint.calls import ModelCalls
from dialrl.endpoint.failure import EndpointError
from dialrl.endpoint.served import announce, withdraw
from dialrl.endpoint.settings import EndpointSettings
from dialrl.engine.base import GenerationRequest, SamplingSettings
from dialrl.engine.vllm import ServerDraws
from dialrl.engine.vllm_process import free_port
from dialrl.errors import EngineError

REQUEST = GenerationRequest([5, 6, 7], seed=11, dialogue="g/0")
SAMPLING = SamplingSettings(temperature=0.7, max_reply_tokens=4)


def process(*, is_alive):
    return SimpleNamespace(is_alive=is_alive, death=lambda when: EngineError(f"the server ended {when}; its log"))


def drawn(url, *, is_alive=True, attempts=1):
    """One reply drawn from ``url`` as the policy's own server."""
    host = SimpleNamespace(process=process(is_alive=is_alive))
    draws = ServerDraws(host, EndpointSettings(attempts=attempts, backoff_seconds=0.01, timeout_seconds=5), (2, 9))
    calls = ModelCalls({"default": EndpointSettings(base_urls=["http://127.0.0.1:9/v1"])})
    draws.connect(calls)

    async def draw():
        async with calls:
            return await draws.draw(REQUEST, SAMPLING, "policy-abc")

    announce("policy", url)
    try:
        return asyncio.run(draw())
    finally:
        withdraw("policy")


def completion(body):
    choice = {"token_ids": [8, 9], "logprobs": {"token_logprobs": [-0.5, -1.5]}, "finish_reason": "stop"}
    return {"choices": [choice], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}


def test_requests_go_to_our_server_with_ids_stop_tokens_and_the_delivered_name():
    with ModelServer(completion) as server:
        reply = drawn(server.url)
    assert (reply.reply_ids, reply.logprobs, reply.finish_reason) == ([8, 9], [-0.5, -1.5], "stop")
    (body,) = server.requests
    assert (body["model"], body["prompt"], body["stop_token_ids"]) == ("policy-abc", [5, 6, 7], [2, 9])
    assert (body["temperature"], body["max_tokens"], body["seed"]) == (0.7, 4, 11)


def test_a_server_that_is_gone_ends_the_rollout_with_the_end_of_its_log():
    with pytest.raises(EngineError, match="ended while it was asked for replies; its log"):
        drawn(f"http://127.0.0.1:{free_port()}/v1", is_alive=False)
    with ModelServer(completion, faults={0: "cut"}) as server, pytest.raises(EngineError, match="its log"):
        drawn(server.url, is_alive=False)


def test_a_server_that_lives_and_fails_at_one_request_breaks_its_dialogue_alone():
    with ModelServer(completion, faults={0: "500"}) as server:
        reply = drawn(server.url)
    assert reply.finish_reason == "error"
    assert "http_500" in reply.error
    with pytest.raises(EndpointError, match="Nobody answers"):
        drawn(f"http://127.0.0.1:{free_port()}/v1")
