"""What an engine may get wrong is told, never trained on; the rollout ends and can be resumed (field case 28)."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.scripted import replies_by_seed, rolled_out
from tests.scripted import settings as rollout_settings

from dialrl.engine.base import EngineCapabilities, Generation, GenerationRequest, SamplingSettings
from dialrl.errors import EngineError
from dialrl.rollout.sampler import BlockSampler, StreamSampler, check_replies, sampler_for
from dialrl.rollout.stage import roll_out
from dialrl.testing import Fault, ScriptedEngine, scripted_policy

SAMPLING = SamplingSettings()


def request(dialogue="a/0"):
    return GenerationRequest([2, 108, 1, 110, 4], 0, dialogue)


# the answers of an engine -------------------------------------------------------------------------------------------


class Odd(ScriptedEngine):
    """An engine that changes its replies before it gives them."""

    def __init__(self, change, schedule="block"):
        super().__init__(["Hm."], schedule=schedule)
        self.change = change

    def generate_block(self, requests, sampling):
        return self.change(super().generate_block(requests, sampling))

    async def generate(self, request, sampling):
        return self.change([await super().generate(request, sampling)])[0]


def policy_with(engine):
    policy = scripted_policy(["Hm."])
    return type(policy)(engine, policy.template, "sha256:odd", 0)


def without_logprobs(replies):
    return [*replies[:-1], Generation(replies[-1].reply_ids, None, "stop")]


def with_nan(replies):
    first = replies[0]
    return [Generation(first.reply_ids, [float("nan"), *first.logprobs[1:]], "stop"), *replies[1:]]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda replies: replies[:-1], "The engine gave 3 replies to 4 requests"),
        (without_logprobs, "A reply has no log-probs, but the engine says it gives them: all replies or none"),
        (with_nan, "no finite number"),
        (lambda replies: 1 / 0, "The engine failed on 4 requests: ZeroDivisionError"),
    ],
)
def test_a_block_that_is_answered_wrongly_ends_the_rollout(tmp_path, change, sentence):
    with pytest.raises(EngineError, match=sentence):
        roll_out(policy_with(Odd(change)), tmp_path / "r.parquet", rollout_settings(2, 2))
    assert not (tmp_path / "r.parquet").exists()


@pytest.mark.parametrize("change", [without_logprobs, with_nan, lambda replies: 1 / 0])
def test_a_stream_that_is_answered_wrongly_does_too(tmp_path, change):
    with pytest.raises(EngineError):
        roll_out(policy_with(Odd(change, "stream")), tmp_path / "r.parquet", rollout_settings(2, 2))


@pytest.mark.parametrize("schedule", ["block", "stream"])
def test_ids_and_log_probs_of_unequal_length_are_refused(tmp_path, schedule):
    policy = scripted_policy(["Hm."], schedule=schedule, faults=[Fault("malformed", turn=1)])
    with pytest.raises(EngineError, match="4 reply ids and 3 log-probs"):
        roll_out(policy, tmp_path / "r.parquet", rollout_settings(2, 2))


def test_log_probs_from_an_engine_that_says_it_has_none_are_refused_too():
    engine = ScriptedEngine(["Hm."])
    engine.capabilities = EngineCapabilities("block", token_ids=True, logprobs=False, deterministic=True)
    with pytest.raises(EngineError, match="A reply has log-probs, but the engine says it gives none"):
        check_replies([Generation([1], [-1.0], "stop")], engine, requests=1)
    check_replies([Generation([1], None, "stop")], engine, requests=1)


def test_a_rollout_without_log_probs_has_none_at_all(tmp_path):
    engine = Odd(lambda replies: [Generation(reply.reply_ids, None, "stop") for reply in replies])
    engine.capabilities = EngineCapabilities("block", token_ids=True, logprobs=False, deterministic=True)
    rows, _ = rolled_out(tmp_path / "r.parquet", rollout_settings(2, 2), policy_with(engine))
    assert {row["reply_logprobs"] for row in rows} == {None}


class Refusing(ScriptedEngine):
    """An engine that cannot answer one dialogue."""

    def generate_block(self, requests, sampling):
        replies = super().generate_block(requests, sampling)
        refused = Generation([], None, "error")
        return [
            refused if asked.dialogue == "scenario-1/0" else reply
            for asked, reply in zip(requests, replies, strict=True)
        ]


def test_a_request_the_engine_could_not_answer_breaks_its_dialogue_alone(tmp_path):
    config = rollout_settings(2, 2, max_failed=1.0)
    rows, summary = rolled_out(tmp_path / "r.parquet", config, policy_with(Refusing(["Hm."])))
    assert summary.counts["failed_dialogues"] == 1
    (failed,) = (row for row in rows if row["status"] == "error")
    assert failed["dialogue_id"] == "scenario-1/0"
    assert "finish_reason 'error'" in failed["error"]


def test_an_engine_that_broke_down_leaves_what_was_done_and_is_resumed(tmp_path):
    config, path = rollout_settings(4, 2, block_dialogues=2), tmp_path / "r.parquet"
    breaks = scripted_policy(replies_by_seed, faults=[Fault("raise", "scenario-2/0", turn=1)])
    with pytest.raises(EngineError, match=r"generate, dialogue 'scenario-2/0'.*as scripted"):
        roll_out(breaks, path, config)
    again = scripted_policy(replies_by_seed)
    roll_out(again, path, config, resume=True)
    assert {call.scenario for call in again.engine.calls} == {f"scenario-{s}/{n}" for s in (2, 3) for n in (0, 1)}
    roll_out(scripted_policy(replies_by_seed), tmp_path / "unbroken.parquet", config)
    assert path.read_bytes() == (tmp_path / "unbroken.parquet").read_bytes()


# the block sampler --------------------------------------------------------------------------------------------------


class Recording:
    """An engine that notes which dialogues it was asked for together."""

    capabilities = EngineCapabilities("block", token_ids=True, logprobs=True, deterministic=True)

    def __init__(self, fails_at=None):
        self.blocks = []
        self.fails_at = fails_at

    def generate_block(self, requests, sampling):
        self.blocks.append([request.dialogue for request in requests])
        if len(self.blocks) - 1 == self.fails_at:
            raise ZeroDivisionError
        return [Generation([int(request.dialogue)], [-1.0], "stop") for request in requests]


async def dialogue(sampler, order, turns, pauses, breaks):
    """Draws ``turns`` replies with pauses between them, then ends, or breaks."""
    try:
        for turn in range(turns):
            for _ in range(pauses[turn % len(pauses)]):
                await asyncio.sleep(0)
            reply = await sampler.draw(order, request(str(order)))
            assert reply.reply_ids == [order]
        if breaks:
            raise ValueError(order)
    finally:
        sampler.leave()


def run_dialogues(engine, schedules):
    async def work():
        sampler = BlockSampler(engine, SAMPLING, len(schedules))
        tasks = [dialogue(sampler, order, *schedule) for order, schedule in enumerate(schedules)]
        return await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 20)

    return asyncio.run(work())


SCHEDULE = st.tuples(st.integers(0, 4), st.lists(st.integers(0, 5), min_size=1, max_size=3), st.booleans())


@given(st.lists(SCHEDULE, min_size=1, max_size=7))
@settings(max_examples=100, deadline=None)
def test_no_block_waits_for_ever_and_each_is_decided_by_the_dialogues(schedules):
    engine = Recording()
    ends = run_dialogues(engine, schedules)
    assert [isinstance(end, ValueError) for end in ends] == [breaks for _, _, breaks in schedules]
    # Turn k is drawn for all dialogues that have a turn k, in their order, whatever the pauses were.
    assert engine.blocks == [
        [str(order) for order, (turns, _, _) in enumerate(schedules) if turns > turn]
        for turn in range(max(turns for turns, _, _ in schedules))
    ]


@given(st.lists(SCHEDULE, min_size=1, max_size=6), st.integers(0, 4))
@settings(max_examples=60, deadline=None)
def test_every_dialogue_that_waits_hears_of_an_engine_that_breaks(schedules, fails_at):
    engine = Recording(fails_at)
    ends = run_dialogues(engine, schedules)
    for (turns, _, _), end in zip(schedules, ends, strict=True):
        assert isinstance(end, EngineError) == (turns > fails_at)


def test_an_interrupted_block_is_not_worked_on_once_more():
    engine = Recording()

    async def work():
        sampler = BlockSampler(engine, SAMPLING, 3)
        waiting = [asyncio.create_task(dialogue(sampler, order, 1, [0], False)) for order in (0, 1)]
        busy = asyncio.create_task(dialogue(sampler, 2, 1, [1000], False))
        await asyncio.sleep(0)
        for task in (busy, *waiting):  # in this order: the busy one leaves while the others seem to wait
            task.cancel()
        return await asyncio.gather(busy, *waiting, return_exceptions=True)

    assert all(isinstance(end, asyncio.CancelledError) for end in asyncio.run(work()))
    assert engine.blocks == []


def test_the_sampler_is_the_engines_kind():
    assert isinstance(sampler_for(ScriptedEngine(["x"]), SAMPLING, 1), BlockSampler)
    assert isinstance(sampler_for(ScriptedEngine(["x"], schedule="stream"), SAMPLING, 1), StreamSampler)
