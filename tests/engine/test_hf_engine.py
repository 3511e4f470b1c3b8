"""The embedded engine: what it draws is what the model says, whatever stands beside it and whatever was cached."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.toys import fast_tokenizer, tiny_policy

from dialrl.engine import engine_factory, open_engine
from dialrl.engine.base import Generation, GenerationRequest, SamplingSettings
from dialrl.engine.decoding import prefill_groups
from dialrl.engine.hf import HfEngine
from dialrl.engine.row_plan import Row, plan_rows
from dialrl.errors import InputError, NumericalError, RunError, UsageError
from dialrl.model.digest import policy_digest
from dialrl.model.loading import load_policy

SAMPLING = SamplingSettings(max_reply_tokens=24)


@pytest.fixture(scope="module")
def policy(tmp_path_factory) -> Path:
    return tiny_policy(tmp_path_factory.mktemp("policy"))


@pytest.fixture(scope="module")
def model(policy) -> Any:
    return load_policy(policy)[0]


@pytest.fixture
def engine(model) -> HfEngine:
    return HfEngine(model, stop_ids=range(2, 22))  # many stops, so that random weights end replies early


def requests_of(rows: int, *, turn: int = 0) -> list[GenerationRequest]:
    random = np.random.default_rng(turn)
    return [
        GenerationRequest(random.integers(22, 300, 3 + 5 * (row % 4)).tolist(), 97 * turn + row, f"d{row}")
        for row in range(rows)
    ]


def continued(requests: list[GenerationRequest], replies: list[Generation], *, turn: int) -> list[GenerationRequest]:
    messages = requests_of(len(requests), turn=turn)
    return [
        GenerationRequest([*request.prompt_ids, *reply.reply_ids, *message.prompt_ids], message.seed, request.dialogue)
        for request, reply, message in zip(requests, replies, messages, strict=True)
    ]


def full_forward_logprobs(model: Any, request: GenerationRequest, reply: Generation, temperature: float = 1.0):
    with torch.inference_mode():
        logits = model(torch.tensor([[*request.prompt_ids, *reply.reply_ids]])).logits[0].double() / temperature
    table = torch.log_softmax(logits, -1)
    first = len(request.prompt_ids)
    return [float(table[first + place - 1, token]) for place, token in enumerate(reply.reply_ids)]


def mean_difference(model: Any, requests: list[GenerationRequest], replies: list[Generation], **options) -> float:
    differences = [
        abs(ours - theirs)
        for request, reply in zip(requests, replies, strict=True)
        for ours, theirs in zip(reply.logprobs, full_forward_logprobs(model, request, reply, **options), strict=True)
    ]
    assert differences
    return float(np.mean(differences))


def test_logprobs_agree_with_a_plain_forward_of_the_whole_segment_over_four_turns(engine, model):
    requests = requests_of(12)
    for turn in range(1, 5):
        replies = engine.generate_block(requests, SAMPLING)
        assert mean_difference(model, requests, replies) < 1e-5
        requests = continued(requests, replies, turn=turn)
        del requests[turn]  # one dialogue ends at every turn


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_continues_ends_or_breaks_every_logprob_is_the_models(engine, model, data):
    rows = data.draw(st.integers(1, 9))
    requests = requests_of(rows)
    for turn in range(1, 4):
        replies = engine.generate_block(requests, SAMPLING)
        assert mean_difference(model, requests, replies) < 1e-5
        requests = continued(requests, replies, turn=turn)
        kept = data.draw(st.lists(st.sampled_from(range(len(requests))), min_size=1, unique=True))
        broken = data.draw(st.sets(st.sampled_from(kept)))
        requests = [
            replace(requests[row], prompt_ids=[33, *requests[row].prompt_ids[1:]]) if row in broken else requests[row]
            for row in kept
        ]


def test_rows_stay_or_fill_gaps_and_new_dialogues_get_what_is_free():
    rows = [Row(name, [1, 2, 3]) for name in "abc"]
    requests = [GenerationRequest([1, 2, 3, 4], 0, name) for name in "ac"] + [GenerationRequest([5, 6], 0, "d")]
    plan = plan_rows(rows, requests)
    assert (plan.requests, plan.starts, plan.moves) == ([0, 2, 1], [3, 0, 3], [])
    shorter = plan_rows(rows, requests[:2])
    assert (shorter.requests, shorter.starts, shorter.moves) == ([0, 1], [3, 3], [(1, 2)])


def test_a_row_serves_one_request_and_only_as_a_real_prefix():
    rows = [Row("a", [1, 2, 3])]
    twice = plan_rows(rows, [GenerationRequest([1, 2, 3, 4], seed, "a") for seed in range(2)])
    assert twice.starts == [3, 0]
    for prompt in ([1, 2, 3], [1, 9, 3, 4], [1, 2]):
        assert not plan_rows(rows, [GenerationRequest(prompt, 0, "a")]).reuses_rows


def test_logprobs_are_those_at_the_temperature_drawn_from(engine, model):
    requests = requests_of(6)
    replies = engine.generate_block(requests, replace(SAMPLING, temperature=0.7))
    assert mean_difference(model, requests, replies, temperature=0.7) < 1e-5


def test_a_continued_dialogue_is_computed_from_what_its_row_holds(engine):
    requests = requests_of(4)
    replies = engine.generate_block(requests, SAMPLING)
    assert [reply.cached_tokens for reply in replies] == [0, 0, 0, 0]
    held = [
        len(request.prompt_ids) + len(reply.reply_ids) - 1 for request, reply in zip(requests, replies, strict=True)
    ]
    again = engine.generate_block(continued(requests, replies, turn=1), SAMPLING)
    assert [reply.cached_tokens for reply in again] == held


def test_a_context_that_is_no_continuation_is_computed_from_its_start(engine, model):
    requests = requests_of(4)
    replies = engine.generate_block(requests, SAMPLING)
    following = continued(requests, replies, turn=1)
    following[2] = replace(following[2], prompt_ids=[30, *following[2].prompt_ids[1:]])
    again = engine.generate_block(following, SAMPLING)
    assert again[2].cached_tokens == 0
    assert again[1].cached_tokens > 0
    assert mean_difference(model, following, again) < 1e-5


def test_the_cache_changes_no_result(engine, model):
    requests = requests_of(8)
    following = continued(requests, engine.generate_block(requests, SAMPLING), turn=1)
    cached = engine.generate_block(following, SAMPLING)
    anew = HfEngine(model, stop_ids=engine.stop_ids).generate_block(following, SAMPLING)
    assert [reply.reply_ids for reply in cached] == [reply.reply_ids for reply in anew]
    for ours, theirs in zip(cached, anew, strict=True):
        assert ours.logprobs == pytest.approx(theirs.logprobs, abs=1e-4)


def test_two_runs_are_equal_to_the_last_bit(engine, model):
    def two_turns(used: HfEngine) -> list[Generation]:
        requests = requests_of(10)
        first = used.generate_block(requests, SAMPLING)
        return first + used.generate_block(continued(requests, first, turn=1), SAMPLING)

    once = two_turns(engine)
    assert two_turns(engine) == once
    assert two_turns(HfEngine(model, stop_ids=engine.stop_ids)) == once


def test_an_earlier_block_moves_no_bit_of_a_later_one(engine, model):
    engine.generate_block([replace(request, dialogue="x") for request in requests_of(17, turn=3)], SAMPLING)
    later = engine.generate_block(requests_of(5), SAMPLING)
    assert later == HfEngine(model, stop_ids=engine.stop_ids).generate_block(requests_of(5), SAMPLING)


def test_a_block_of_one_and_a_block_of_many_agree(engine, model):
    requests = requests_of(9)
    many = engine.generate_block(requests, SAMPLING)
    for request, reply in zip(requests, many, strict=True):
        alone = HfEngine(model, stop_ids=engine.stop_ids).generate_block([request], SAMPLING)[0]
        assert alone.reply_ids == reply.reply_ids
        assert alone.logprobs == pytest.approx(reply.logprobs, abs=1e-4)


def test_equal_prompts_with_different_seeds_get_different_replies(engine):
    prompt = requests_of(1)[0].prompt_ids
    replies = engine.generate_block([GenerationRequest(prompt, seed=seed) for seed in range(8)], SAMPLING)
    assert len({tuple(reply.reply_ids) for reply in replies}) == 8


def test_a_reply_ends_with_its_stop_token_or_at_the_limit(engine):
    replies = engine.generate_block(requests_of(16), SAMPLING)
    assert {reply.finish_reason for reply in replies} == {"stop", "length"}
    for reply in replies:
        stops = [token in engine.stop_ids for token in reply.reply_ids]
        assert not any(stops[:-1])
        assert (reply.finish_reason == "stop") == stops[-1]
        assert reply.finish_reason == "stop" or len(reply.reply_ids) == 24


def test_ids_and_logprobs_are_of_equal_length(engine):
    for reply in engine.generate_block(requests_of(16), SAMPLING):
        assert len(reply.reply_ids) == len(reply.logprobs) > 0
        assert all(logprob <= 0 for logprob in reply.logprobs)


def test_a_reply_with_other_than_one_logprob_an_id_is_an_error():
    with pytest.raises(RunError, match="3 reply ids and 2 log-probs"):
        Generation([1, 2, 9], [-0.1, -0.2], "stop")
    with pytest.raises(RunError, match="1 reply ids and 0 log-probs"):
        Generation([9], [], "stop")
    assert Generation([1, 2, 9], None, "stop").logprobs is None


def test_a_stop_token_that_is_also_the_padding_token_is_part_of_the_reply(policy, model):
    padding = model.config.pad_token_id
    assert padding in HfEngine.open(policy).stop_ids
    engine = HfEngine(model, stop_ids=[padding])
    context = [padding, 40, padding]  # padding by value inside a prompt is a token like any other
    replies = engine.generate_block(
        [GenerationRequest(context, 1), GenerationRequest([41] * 9, 2)], replace(SAMPLING, max_reply_tokens=5)
    )
    requests = [GenerationRequest(context, 1), GenerationRequest([41] * 9, 2)]
    assert mean_difference(model, requests, replies) < 1e-5


def test_a_requests_own_limit_goes_before_the_blocks(engine):
    requests = [replace(request, max_reply_tokens=2 + row) for row, request in enumerate(requests_of(4))]
    replies = HfEngine(engine.model, stop_ids=[]).generate_block(requests, SAMPLING)
    assert [len(reply.reply_ids) for reply in replies] == [2, 3, 4, 5]
    assert {reply.finish_reason for reply in replies} == {"length"}


def test_the_context_limit_cuts_a_reply_and_leaves_no_room_for_another(model):
    engine = HfEngine(model, stop_ids=[])
    short, long, full = ([30] * length for length in (3, 8, 10))
    requests = [GenerationRequest(ids, seed=1) for ids in (short, long, full)]
    replies = engine.generate_block(requests, replace(SAMPLING, context_limit_tokens=10))
    assert [len(reply.reply_ids) for reply in replies] == [7, 2, 0]
    assert [reply.finish_reason for reply in replies] == ["length"] * 3
    assert replies[2].logprobs == []


def test_an_ended_row_never_passes_the_last_position_of_the_model():
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    sizes = {"n_positions": 32, "n_embd": 32, "n_layer": 2, "n_head": 4, "initializer_range": 0.3}
    model = GPT2LMHeadModel(GPT2Config(vocab_size=300, **sizes)).eval()
    requests = [GenerationRequest([30 + row] * (30 if row == 0 else 4), seed=row) for row in range(8)]
    replies = HfEngine(model, stop_ids=[]).generate_block(requests, SAMPLING)
    assert [len(reply.reply_ids) for reply in replies] == [2, *[24] * 7]
    assert mean_difference(model, requests, replies) < 1e-5


def test_greedy_replies_take_the_most_probable_token(model):
    engine = HfEngine(model, stop_ids=[])
    request = GenerationRequest([30, 31, 32], seed=5)
    reply = engine.generate_block([request], replace(SAMPLING, temperature=0, max_reply_tokens=4))[0]
    context = list(request.prompt_ids)
    with torch.inference_mode():
        for token in reply.reply_ids:
            assert token == int(model(torch.tensor([context])).logits[0, -1].argmax())
            context.append(token)
    assert reply.logprobs == [0.0] * 4


def test_a_long_prompt_goes_through_in_parts(model, monkeypatch):
    import dialrl.engine.decoding as decoding

    monkeypatch.setattr(decoding, "_PREFILL_WIDTH", 7)
    engine = HfEngine(model, stop_ids=[])
    requests = [GenerationRequest(list(range(40, 40 + length)), seed=length) for length in (50, 31, 3)]
    assert mean_difference(model, requests, engine.generate_block(requests, SAMPLING)) < 1e-5


def test_rows_of_very_different_width_are_prefilled_in_groups():
    assert prefill_groups([40, 38, 36, 5, 4]) == [(0, 3), (3, 5)]
    assert prefill_groups([10_000, 9_000, 8_000]) == [(0, 1), (1, 2), (2, 3)]
    assert prefill_groups([3]) == [(0, 1)]


def test_a_sliding_window_is_kept(tmp_path):
    from transformers import MistralConfig, MistralForCausalLM

    torch.manual_seed(0)
    config = MistralConfig(
        vocab_size=300, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, sliding_window=8, initializer_range=0.3,
    )  # fmt: skip
    model = MistralForCausalLM(config).eval()
    requests = requests_of(6)
    assert max(len(request.prompt_ids) for request in requests) > 8
    assert mean_difference(model, requests, HfEngine(model, stop_ids=[]).generate_block(requests, SAMPLING)) < 1e-5


def test_sliding_and_full_layers_side_by_side_are_kept(tmp_path):
    directory = tiny_policy(
        tmp_path, use_sliding_window=True, sliding_window=8, layer_types=["sliding_attention", "full_attention"]
    )
    model = load_policy(directory)[0]
    requests = requests_of(6)
    assert mean_difference(model, requests, HfEngine(model, stop_ids=[]).generate_block(requests, SAMPLING)) < 1e-5


def test_the_eager_attention_agrees_too(policy):
    from dialrl.model.loading import LoadingSettings

    model = load_policy(policy, LoadingSettings(attention="eager"))[0]
    requests = requests_of(6)
    assert mean_difference(model, requests, HfEngine(model, stop_ids=[]).generate_block(requests, SAMPLING)) < 1e-5


def test_half_precision_agrees_with_itself_within_its_precision(policy):
    from dialrl.model.loading import LoadingSettings

    model = load_policy(policy, LoadingSettings(precision="bfloat16"))[0]
    requests = requests_of(6)
    replies = HfEngine(model, stop_ids=[]).generate_block(requests, SAMPLING)
    assert mean_difference(model, requests, replies) < 0.05


def test_logits_exist_at_the_last_position_only(engine, monkeypatch):
    shapes = []
    forward = engine.model.lm_head.forward
    monkeypatch.setattr(engine.model.lm_head, "forward", lambda hidden: shapes.append(hidden.shape) or forward(hidden))
    engine.generate_block(requests_of(8), SAMPLING)
    assert shapes
    assert {shape[1] for shape in shapes} == {1}


def test_new_weights_change_digest_and_logprobs_and_drop_the_cache(policy, tmp_path):
    engine = HfEngine.open(policy)
    assert engine.policy_digest == policy_digest(policy / "model")
    other = tiny_policy(tmp_path, seed=1)
    requests = requests_of(4)
    before = engine.generate_block(requests, SAMPLING)
    engine.load_weights(other)
    assert engine.policy_digest == policy_digest(other / "model") != policy_digest(policy / "model")
    after = engine.generate_block(continued(requests, before, turn=1), SAMPLING)
    assert [reply.cached_tokens for reply in after] == [0, 0, 0, 0]
    again = engine.generate_block(requests, SAMPLING)
    fresh = HfEngine.open(other).generate_block(requests, SAMPLING)
    assert again == fresh
    assert again != before


def test_weights_of_another_architecture_are_refused_and_change_nothing(policy, tmp_path):
    engine = HfEngine.open(policy)
    before = engine.generate_block(requests_of(2), SAMPLING)
    with pytest.raises(InputError, match="another architecture"):
        engine.load_weights(tiny_policy(tmp_path, intermediate_size=48))
    assert engine.generate_block(requests_of(2), SAMPLING) == before


def test_broken_weights_are_an_error_that_names_dialogue_and_token(policy):
    model = load_policy(policy)[0]
    with torch.no_grad():
        model.lm_head.weight[5] = float("nan")
    with pytest.raises(NumericalError, match=r"Dialogue 'd0'.*token 0"):
        HfEngine(model, stop_ids=[]).generate_block(requests_of(2), SAMPLING)


@pytest.mark.parametrize("ids", [[], [100_000], [-1]])
def test_ids_outside_the_vocabulary_are_refused(engine, ids):
    with pytest.raises(InputError, match="Dialogue 'd'"):
        engine.generate_block([GenerationRequest(ids, seed=1, dialogue="d")], SAMPLING)


def test_a_model_whose_layers_keep_no_keys_is_refused(model, monkeypatch):
    monkeypatch.setattr(model.config, "layer_types", ["linear_attention", "full_attention"])
    with pytest.raises(UsageError, match="linear_attention"):
        HfEngine(model, stop_ids=[])


def test_a_closed_engine_says_so(policy):
    engine = HfEngine.open(policy)
    engine.close()
    with pytest.raises(RunError, match="closed"):
        engine.generate_block(requests_of(1), SAMPLING)


def test_the_stop_tokens_are_those_of_the_policys_list(policy):
    ends = fast_tokenizer("").convert_tokens_to_ids(["<|im_end|>", "<|endoftext|>"])
    assert HfEngine.open(policy).stop_ids == tuple(sorted(ends))


def test_engines_are_opened_by_name(policy):
    engine = open_engine("hf", policy)
    assert engine.capabilities.schedule == "block"
    assert engine.capabilities.token_ids
    assert engine.capabilities.logprobs
    assert engine.capabilities.deterministic
    assert engine.capabilities.context_limit_tokens == 512
    with pytest.raises(UsageError, match=r"no engine 'hfx'.*Did you mean 'hf'"):
        engine_factory("hfx")
