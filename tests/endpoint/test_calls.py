"""Calls over HTTP: what is tried again, what is kept, what it may cost; the key goes nowhere."""

import asyncio
import json

import pytest
from tests.model_server import ModelServer

from dialrl.endpoint.calls import ModelCalls
from dialrl.endpoint.chat import chat, read_reply
from dialrl.endpoint.failure import BudgetError, EndpointError, ModelCallError
from dialrl.endpoint.journal import Journal
from dialrl.endpoint.ledger import cost_usd
from dialrl.endpoint.pacing import Pacing
from dialrl.endpoint.settings import Budget, EndpointSettings, ModelSettings
from dialrl.errors import UsageError
from dialrl.scenario.message import Message, Usage

MODEL = ModelSettings(model="m", max_tokens=20)
ASKED = [Message("user", "How are you?")]


def endpoint(server, **options):
    values = {"base_urls": [server.url], "timeout_seconds": 0.4, "backoff_seconds": 0.01, "attempts": 3, **options}
    return EndpointSettings(**values)


def ask(server, *seeds, endpoints=None, settings=MODEL, **options):
    """The texts of one call a seed, all at once, and the calls' ledger."""

    async def run():
        calls = ModelCalls(endpoints or {"default": endpoint(server)}, **options)
        async with calls:
            replies = await asyncio.gather(*(chat(calls, "actor", settings, ASKED, seed=seed) for seed in seeds))
        return [reply.text for reply in replies], calls.ledger

    return asyncio.run(run())


def echo(body):
    return f"seed {body.get('seed')}"


# faults of the wire -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["429", "500", "503", "hang", "cut", "truncated_json", "drip"])
def test_a_call_that_fails_once_is_made_again(fault):
    with ModelServer(echo, faults={0: fault}) as server:
        texts, ledger = ask(server, 7)
    assert texts == ["seed 7"]
    assert ledger.figures()["actor"]["tries"] == 2 == len(server.requests)


@pytest.mark.parametrize(
    ("fault", "reason", "tries"),
    [("429", "http_429", 3), ("hang", "timeout", 3), ("cut", "connection", 3), ("truncated_json", "bad_response", 3),
     ("400", "http_400", 1)],
)  # fmt: skip
def test_a_call_that_keeps_failing_says_why_after_its_tries(fault, reason, tries):
    with ModelServer(echo, faults=lambda number, body: fault) as server, pytest.raises(ModelCallError) as failure:
        ask(server, 7)
    assert failure.value.reason == reason
    assert len(server.requests) == tries


def test_429_429_ok_is_ok():
    with ModelServer(echo, faults={0: "429", 1: "429"}) as server:
        assert ask(server, 1)[0] == ["seed 1"]


def test_retry_after_is_kept_in_seconds_and_as_a_date(monkeypatch):
    waited = []
    sleep = asyncio.sleep

    async def noted(seconds):
        waited.append(seconds)
        await sleep(0)

    with ModelServer(echo, faults={0: "429"}, retry_after="7") as server:
        monkeypatch.setattr("dialrl.endpoint.transport.asyncio.sleep", noted)
        ask(server, 1)
        monkeypatch.undo()
    assert 7.0 in waited
    from dialrl.endpoint.transport import _retry_after

    assert _retry_after("Wed, 21 Oct 2015 07:28:00 GMT") == 0.0
    assert _retry_after("soon") is None


def test_a_refused_key_ends_the_stage_and_is_shown_to_nobody(monkeypatch, tmp_path):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    path = tmp_path / "calls.jsonl"
    with ModelServer(echo, faults={1: "401"}) as server:
        ask(server, 1, journal_path=path)
        with pytest.raises(EndpointError) as failure:
            ask(server, 2, journal_path=path)
    assert server.headers[0]["authorization"] == "Bearer sk-very-secret"
    assert "sk-very-secret" not in str(failure.value) + path.read_text()


def test_an_address_where_nobody_listens_ends_the_stage():
    settings = EndpointSettings(base_urls=["http://127.0.0.1:9/v1"], attempts=2, backoff_seconds=0.01)
    with pytest.raises(EndpointError, match="Nobody answers"):
        ask(None, 1, endpoints={"actor": settings})


def test_a_broken_address_is_left_for_the_next_one():
    with ModelServer(echo) as server:
        both = endpoint(server, base_urls=["http://127.0.0.1:9/v1", server.url])
        assert ask(server, 1, 2, 3, endpoints={"default": both})[0] == ["seed 1", "seed 2", "seed 3"]


def test_no_more_calls_are_in_flight_than_allowed():
    with ModelServer(echo, latency_seconds=0.02) as server:
        ask(server, *range(12), endpoints={"default": endpoint(server, concurrency=3)})
    assert server.most_in_flight == 3


def test_an_address_with_a_key_in_it_is_refused():
    with pytest.raises(ValueError, match="keys come from the environment"):
        EndpointSettings(base_urls=["https://user:key@host/v1"])


def test_without_an_address_the_error_says_where_to_put_one(monkeypatch):
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(UsageError, match="base_urls"):
        ask(None, 1, endpoints={"judge": EndpointSettings(base_urls=["http://127.0.0.1:9/v1"])})


# the journal --------------------------------------------------------------------------------------------------------


def test_answered_calls_are_replayed_and_only_the_others_sent(tmp_path):
    path = tmp_path / "calls.jsonl"
    with ModelServer(echo) as server:
        ask(server, 1, 2, journal_path=path)
        texts, ledger = ask(server, 1, 2, 3, journal_path=path)
    assert texts == ["seed 1", "seed 2", "seed 3"]
    assert len(server.requests) == 3
    assert ledger.figures()["actor"]["replayed"] == 2
    assert ledger.spent_tokens == 3 * 110  # what was paid before the kill counts


def test_a_failed_call_is_replayed_as_failed(tmp_path):
    with ModelServer(echo, faults={0: "400"}) as server:
        for _ in range(2):
            with pytest.raises(ModelCallError, match="http_400: "):
                ask(server, 1, journal_path=tmp_path / "calls.jsonl")
    assert len(server.requests) == 1


def test_a_half_written_line_is_a_miss_and_does_no_harm(tmp_path):
    path = tmp_path / "calls.jsonl"
    with ModelServer(echo) as server:
        ask(server, 1, 2, journal_path=path)
        path.write_bytes(path.read_bytes()[:-30])
        assert ask(server, 1, 2, journal_path=path)[0] == ["seed 1", "seed 2"]
        assert len(server.requests) == 3
    assert len(Journal(path).entries) == 2


def test_equal_calls_in_flight_share_one_request():
    with ModelServer(echo, latency_seconds=0.05) as server:
        assert ask(server, 5, 5, 5)[0] == ["seed 5"] * 3
    assert len(server.requests) == 1


def test_a_call_nobody_waits_for_is_dropped():
    async def run(url):
        calls = ModelCalls({"default": EndpointSettings(base_urls=[url], timeout_seconds=60)})
        async with calls:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(chat(calls, "actor", MODEL, ASKED, seed=1), 0.05)
            return list(calls.journal.entries), calls._flights

    with ModelServer(echo, faults={0: "hang"}) as server:
        assert asyncio.run(run(server.url)) == ([], {})


# the budget ---------------------------------------------------------------------------------------------------------


def test_the_budget_stops_before_it_is_exceeded_and_keeps_what_was_answered(tmp_path):
    # The request is about 50 estimated tokens + a limit of 20; each answer books 110.
    path = tmp_path / "calls.jsonl"
    with ModelServer(echo, latency_seconds=0.02) as server:
        with pytest.raises(BudgetError, match="--resume"):
            ask(server, *range(10), journal_path=path, budget=Budget(tokens=250))
        sent = len(server.requests)
        assert 1 <= sent < 10
        assert len(Journal(path).entries) == sent  # those in flight were awaited
        ask(server, *range(10), journal_path=path, budget=Budget(tokens=100_000))
        assert len(server.requests) == 10


def test_dialogues_beside_the_one_that_ended_the_stage_ask_no_more(tmp_path):
    path = tmp_path / "calls.jsonl"

    async def goes_on(calls):
        for seed in range(50):
            await chat(calls, "actor", MODEL, ASKED, seed=seed)

    async def ends(calls):
        await chat(calls, "actor", MODEL, ASKED, seed=99)
        raise EndpointError("gone")

    async def run(server):
        async with ModelCalls({"default": endpoint(server)}, journal_path=path) as calls:
            await asyncio.gather(goes_on(calls), ends(calls))

    with ModelServer(echo, latency_seconds=0.02) as server:
        with pytest.raises(EndpointError, match="gone"):
            asyncio.run(run(server))
        assert 2 <= len(server.requests) == len(Journal(path).entries) <= 4


def test_a_budget_in_money_needs_prices():
    with ModelServer(echo) as server, pytest.raises(UsageError, match="usd_per_million_prompt_tokens"):
        ask(server, 1, budget=Budget(usd=1.0))


def test_cached_tokens_have_their_own_price():
    prices = {"prompt": 2, "cached": 1, "completion": 8}
    settings = EndpointSettings(**{f"usd_per_million_{name}_tokens": price for name, price in prices.items()})
    assert cost_usd(Usage("judge", 1000, 400, 100), settings) == pytest.approx(0.0024)


# answers ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", [{}, {"choices": []}, {"choices": [{"message": None}]}, {"choices": 3}])
def test_what_is_no_chat_completion_is_a_failed_call(answer):
    with pytest.raises(ModelCallError, match="bad_response"):
        read_reply("actor", answer)


def test_tool_arguments_that_are_no_json_object_are_none():
    def call(arguments):
        return {"function": {"name": "observe", "arguments": arguments}}

    message = {"content": None, "tool_calls": [call(json.dumps({"a": 1})), call("{"), call("[1]")]}
    reply = read_reply("director", {"choices": [{"message": message, "finish_reason": "tool_calls"}]})
    assert [tool.arguments for tool in reply.tool_calls] == [{"a": 1}, None, None]


# pacing and places --------------------------------------------------------------------------------------------------


def test_calls_are_spread_over_the_minute_by_requests_and_by_tokens():
    def delays(*tokens, **limits):
        pacing = Pacing(EndpointSettings(**limits))
        return [round(pacing._delay(count)) for count in tokens]

    assert delays(1, 1, 1) == [0, 0, 0]
    assert delays(1, 1, 1, requests_per_minute=60) == [0, 1, 2]
    assert delays(100, 200, 1, tokens_per_minute=6000) == [0, 1, 3]
    assert delays(100, 1, 1, tokens_per_minute=6000, requests_per_minute=30) == [0, 2, 4]


def test_a_dialogue_stays_at_one_of_several_addresses_and_dialogues_spread():
    async def run(urls):
        calls = ModelCalls({"default": EndpointSettings(base_urls=urls)})
        async with calls:
            for turn in range(3):
                for dialogue in range(8):
                    messages = [Message("user", f"dialogue {dialogue}")]
                    await chat(calls, "policy", MODEL, messages, seed=turn, route=f"d/{dialogue}")

    with ModelServer(echo) as one, ModelServer(echo) as two:
        asyncio.run(run([one.url, two.url]))
        seen = [{body["messages"][0]["content"] for body in server.requests} for server in (one, two)]
    assert seen[0]
    assert seen[1]
    assert not seen[0] & seen[1]
    assert len(one.requests) + len(two.requests) == 24
