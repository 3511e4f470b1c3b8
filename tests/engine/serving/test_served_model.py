"""A tiny random model answering in batches: prefixes, seeds, limits, schemas."""

import json
import threading
from dataclasses import replace

import pytest
import torch
from tests.toys import CHATML, tiny_policy

from dialrl.engine.base import SamplingSettings
from dialrl.engine.decoding import BlockDecoder
from dialrl.engine.hf import HfEngine
from dialrl.engine.serving.asked import Asked, BadRequestError
from dialrl.engine.serving.batching import Batching
from dialrl.engine.serving.constraint import ClosedError, can_constrain
from dialrl.engine.serving.model import ServedModel, common_length, prompt_waves, shared_prefixes
from dialrl.model.loading import LoadingSettings
from dialrl.scenario.message import Message

GREEDY = SamplingSettings(temperature=0.0, max_reply_tokens=6)
SCHEMA = {
    "type": "object",
    "properties": {"why": {"type": "string", "maxLength": 8}, "level": {"type": "integer", "enum": [0, 1, 2]}},
    "required": ["why", "level"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    torch.set_num_threads(1)
    return tiny_policy(tmp_path_factory.mktemp("model"), chat_template=CHATML)


@pytest.fixture
def model(place):
    return ServedModel.open(place, LoadingSettings())


def asked(model, said, *, sampling=GREEDY, seed=0, schema=None):
    template = model.template({})
    long = "I could not sleep again, and I keep thinking about what my brother said. "
    ids = template.prompt_ids([Message("system", long * 2), Message("user", said)])
    return Asked(ids, sampling, seed, template, schema)


def ids(replies):
    return [reply.reply_ids for reply in replies]


def test_it_draws_what_the_embedded_engine_draws(model, place):
    requests = [asked(model, said) for said in ("Hello", "Yes.", "That hurts.")]
    engine = HfEngine.open(place)
    alone = [engine.generate_block([_request(one)], GREEDY)[0].reply_ids for one in requests]
    assert ids(model.answer(requests)) == alone


def _request(one):
    from dialrl.engine.base import GenerationRequest

    return GenerationRequest(one.prompt_ids, one.seed)


def test_a_reused_prefix_changes_no_answer(model):
    first = [asked(model, said) for said in ("Hello", "Yes.", "That hurts.", "And then?")]
    cold = ids(model.answer(first))
    warm = ids(model.answer(list(reversed(first))))
    assert list(reversed(warm)) == cold
    grown = model.answer([asked(model, "Hello again, I am worried about the exam."), asked(model, "Yes.")])
    assert grown[1].reply_ids == cold[1]


def test_what_all_prompts_of_a_batch_begin_with_is_computed_once(model, monkeypatch):
    computed = []
    real = BlockDecoder.prefill

    def counted(self, new_ids, starts, *, first_row):
        computed.append([len(ids) for ids in new_ids])
        return real(self, new_ids, starts, first_row=first_row)

    monkeypatch.setattr(BlockDecoder, "prefill", counted)
    batch = [asked(model, said) for said in ("Hello", "Yes.", "That hurts.")]
    shared = min(common_length(batch[0].prompt_ids, one.prompt_ids) for one in batch)
    model.answer(batch)
    assert shared > 64
    assert computed[0] == [len(batch[0].prompt_ids)]
    assert computed[1] == [
        len(one.prompt_ids) - common_length(batch[0].prompt_ids, one.prompt_ids) for one in batch[1:]
    ]
    del computed[:]
    model.answer(batch)  # each starts from the row that holds it whole, but for the last id
    assert computed == [[1, 1, 1]]


def test_after_a_failure_nothing_is_reused(model, monkeypatch):
    batch = [asked(model, said) for said in ("Hello", "Yes.")]
    expected = ids(model.answer(batch))
    model.stop.set()
    with pytest.raises(ClosedError):
        model.answer(batch)
    assert model._rows == {}
    model.stop.clear()
    assert ids(model.answer(batch)) == expected


def test_prompts_wait_for_the_one_whose_beginning_they_share():
    one, two = [1, 2, 3], [9, 8, 7]
    prompts = [[*one, 4], [*one, 5], [9, 9], [*two, 1], [*two, 2]]
    assert prompt_waves([], prompts, worth_waiting=2) == [[0, 2, 3], [1, 4]]
    assert prompt_waves([one, two], prompts, worth_waiting=2) == [[0, 1, 2, 3, 4]]  # both are held already
    chain = [[1, 2, 3, 4, 5, 6], [1, 2, 3, 7, 7, 7], [1, 2, 3, 7, 7, 8]]
    assert prompt_waves([], chain, worth_waiting=2) == [[0], [1], [2]]


def test_rows_that_hold_a_prefix_are_copied_to_where_it_is_needed():
    starts, moves = shared_prefixes([[1, 2, 3], [7, 8]], [[7, 8, 9], [1, 2, 4]], worth_copying=2)
    assert (starts, moves) == ([2, 2], [(0, 1), (1, 0)])
    assert shared_prefixes([[1, 2, 3]], [[1, 2, 3]], worth_copying=2) == ([2], [])  # one id is left to compute
    assert shared_prefixes([], [[1, 2]]) == ([0], [])
    assert (common_length([1, 2, 3], [1, 2, 9]), common_length([], [1])) == (2, 0)


def test_equal_seeds_draw_equal_answers_whoever_stands_beside(model):
    warm = SamplingSettings(temperature=1.0, max_reply_tokens=6)
    one = asked(model, "Hello", sampling=warm, seed=5)
    alone = model.answer([one])[0].reply_ids
    others = [asked(model, said, sampling=warm, seed=9) for said in ("Yes.", "That hurts.")]
    assert model.answer([others[0], one, others[1]])[1].reply_ids == alone


def test_log_probs_are_those_of_the_distribution_drawn_from(model):
    drawn = model.answer([asked(model, "Hello", sampling=SamplingSettings(temperature=0.7, max_reply_tokens=5))])[0]
    assert len(drawn.logprobs) == len(drawn.reply_ids)
    assert all(value <= 0 for value in drawn.logprobs)


def test_a_prompt_that_does_not_fit_is_refused_and_the_others_are_answered(model):
    good, bad = asked(model, "Hello"), Asked([10**6], GREEDY, 0)
    batching = Batching(model)
    try:
        assert batching.ask(good).reply_ids
        with pytest.raises(BadRequestError, match="the prompt has 1 tokens"):
            batching.ask(bad)
        assert batching.ask(good).reply_ids
    finally:
        batching.close()


def test_one_broken_request_of_a_batch_does_not_break_the_others():
    from dialrl.engine.serving import batching

    class Model:
        stop = threading.Event()

        def answer(self, batch):
            if any(one.seed == 13 for one in batch):
                raise BadRequestError("as told")
            return [one.seed for one in batch]

    made = Batching(Model())
    try:
        waiting = [batching._Waiting(Asked([1], GREEDY, seed)) for seed in (1, 13, 2)]
        made._answer(waiting)
        assert [waiting[0].future.result(), waiting[2].future.result()] == [1, 2]
        with pytest.raises(BadRequestError, match="as told"):
            waiting[1].future.result()
    finally:
        made.close()


def test_a_server_that_is_closed_cuts_short_what_it_answers(model):
    batching = Batching(model)
    endless = asked(model, "Hello", sampling=SamplingSettings(temperature=1.0, max_reply_tokens=10**6))
    endless = replace(endless, prompt_ids=endless.prompt_ids[:1])
    model.context_limit = None
    ended = []

    def ask():
        with pytest.raises(ClosedError):
            batching.ask(endless)
        ended.append(True)

    model._ends = [10**6]  # nothing stops it but the end of the server
    waiting = threading.Thread(target=ask)
    waiting.start()
    batching.close()
    waiting.join(timeout=60)
    assert ended == [True]


@pytest.mark.skipif(not can_constrain(), reason="llguidance (the extra serve) is not installed")
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_an_answer_holds_to_its_schema_beside_one_that_is_free(model, temperature):
    sampling = SamplingSettings(temperature=temperature, max_reply_tokens=80)
    batch = [asked(model, f"Grade {n}", sampling=sampling, seed=n, schema=SCHEMA) for n in range(3)]
    for reply in model.answer(batch):
        assert reply.finish_reason == "stop"
        found = json.loads(model.tokenizer.decode(reply.reply_ids[:-1]))
        assert found["level"] in (0, 1, 2)
        assert len(found["why"]) <= 8
