"""The packed forward equals the plain path on real models, and four ways to get it wrong are each noticed."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from dialrl.model.belief import attention, forward
from dialrl.model.belief.forward import can_branch, gold_logprobs, one_by_one, packed_beliefs
from dialrl.model.belief.gold import GoldAlias
from dialrl.model.belief.tree import BeliefTask, build_tree

VOCABULARY = 97
SHAPE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "initializer_range": 0.4,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}


def model_of(kind="qwen3", dtype=torch.float64, **changes):
    torch.manual_seed(1)
    if kind == "llama":
        made = LlamaForCausalLM(LlamaConfig(**{**SHAPE, **changes}))
    else:
        made = Qwen3ForCausalLM(Qwen3Config(**{**SHAPE, "head_dim": 8, **changes}))
    return made.to(dtype).eval()


def ragged_tasks():
    """Three dialogues of different length, four cuts, three answers; one is a prefix of another."""
    draws = np.random.default_rng(3)
    wrapper = (11, 12, 13)
    aliases = (
        GoldAlias("one", wrapper, (20, 21)),
        GoldAlias("longer", wrapper, (20, 21, 22, 23)),
        GoldAlias("other", wrapper, (30,)),
    )
    return [
        BeliefTask(draws.integers(0, VOCABULARY, length), cuts, aliases)
        for length, cuts in ((40, (5, 17, 31, 40)), (23, (4, 9, 15, 23)), (57, (8, 22, 41, 57)))
    ]


def difference(found, expected):
    return max(float(np.abs(a - b).max()) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("kind", ["qwen3", "llama"])
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float64, 1e-10), (torch.float32, 1e-4)])
@pytest.mark.parametrize("token_budget", [1, 200, 10_000])
@pytest.mark.parametrize("way", ["split", "dense"])
def test_packed_equals_one_by_one(kind, dtype, bound, token_budget, way):
    model = model_of(kind, dtype)
    expected = one_by_one(model, ragged_tasks())
    assert [belief.shape for belief in expected] == [(4, 3)] * 3
    assert min(float(np.ptp(belief)) for belief in expected) > 0.5  # the beliefs differ, so equality says something
    packed = packed_beliefs(model, ragged_tasks(), token_budget=token_budget, attention=way)
    assert difference(packed, expected) < bound


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize(("kind", "dtype", "bound"), [("qwen3", torch.float64, 1e-10), ("llama", torch.float32, 1e-4)])
def test_flex_attention_equals_it_too(kind, dtype, bound):
    """Uncompiled, as on a CPU; the block mask is the one a GPU gets."""
    model = model_of(kind, dtype)
    packed = packed_beliefs(model, ragged_tasks(), attention="flex")
    assert difference(packed, one_by_one(model, ragged_tasks())) < bound


def test_the_plain_path_is_the_models_own_log_probs():
    model, task = model_of(), ragged_tasks()[1]
    ids = [*task.trunk_ids[:9].tolist(), 11, 12, 13, 20, 21, 22, 23]
    with torch.no_grad():
        log_softmax = torch.log_softmax(model(torch.tensor([ids])).logits[0], dim=-1)
    by_hand = np.mean([float(log_softmax[place - 1, ids[place]]) for place in range(12, 16)])
    assert one_by_one(model, [task])[0][1, 1] == pytest.approx(by_hand, abs=1e-12)


def test_bfloat16_stays_near_float32_with_its_head_in_float32():
    narrow = model_of(dtype=torch.bfloat16)
    packed, plain = (path(narrow, ragged_tasks()) for path in (packed_beliefs, one_by_one))
    assert difference(packed, plain) < 0.5
    assert all(np.isfinite(belief).all() for belief in packed)


def test_a_floor_holds_for_each_token():
    model = model_of()
    expected, floored = (one_by_one(model, ragged_tasks(), token_floor=floor)[0] for floor in (None, -3.0))
    assert expected.min() < -3.0 <= floored.min()
    packed = packed_beliefs(model, ragged_tasks(), token_floor=-3.0)[0]
    assert difference([packed], [floored]) < 1e-10


# planted errors -----------------------------------------------------------------------------------------------------


def leaking_future(task):
    tree = build_tree(task)
    branch = tree.nodes_N > 0
    return replace(tree, cuts_N=np.where(branch, len(task.trunk_ids), tree.cuts_N))


def physical_positions(task):
    tree = build_tree(task)
    return replace(tree, positions_N=np.arange(tree.tokens))


def wrong_predecessor(task):
    """The first token of an answer predicted by its physical neighbour."""
    tree = build_tree(task)
    first = np.diff(tree.entries_S, prepend=-1) != 0
    start = np.concatenate([[0], np.cumsum(np.diff(np.flatnonzero(np.append(first, True))) - 1)])[:-1]
    branch = np.flatnonzero(tree.parents_N > 0)
    neighbour = np.append(branch, tree.tokens)[start] - 1
    predictors = tree.predictors_S.copy()
    predictors[first] = neighbour
    return replace(tree, predictors_S=predictors)


@pytest.mark.parametrize("wrong", [leaking_future, physical_positions, wrong_predecessor])
def test_a_wrong_layout_is_noticed(monkeypatch, wrong):
    model = model_of()
    expected = one_by_one(model, ragged_tasks())
    assert difference(packed_beliefs(model, ragged_tasks()), expected) < 1e-10
    monkeypatch.setattr(forward, "build_tree", wrong)
    assert difference(packed_beliefs(model, ragged_tasks()), expected) > 1e-3


@pytest.mark.parametrize("column", ["predictors_S", "starts_N"])
def test_indices_of_the_dialogue_in_place_of_the_rows_are_noticed(monkeypatch, column):
    """Places, or beginnings of the trunk, that did not move on with their dialogue when several were put into a row."""
    model = model_of()
    expected = one_by_one(model, ragged_tasks())
    right = forward.join

    def unmoved(trees):
        local = np.concatenate([getattr(tree, column) for tree in trees])
        return replace(right(trees), **{column: local})

    monkeypatch.setattr(forward, "join", unmoved)
    assert difference(packed_beliefs(model, ragged_tasks()), expected) > 1e-3


def test_seeing_another_dialogue_of_the_row_is_noticed():
    """Two dialogues in one row with the cuts counted in the row: the second one reads the first."""
    model = model_of()
    first, second = ragged_tasks()[:2]
    apart = one_by_one(model, [second])[0]
    joined = BeliefTask(
        np.concatenate([first.trunk_ids, second.trunk_ids]),
        tuple(len(first.trunk_ids) + cut for cut in second.cuts),
        second.aliases,
    )
    assert difference(packed_beliefs(model, [joined]), [apart]) > 1e-3


# models -------------------------------------------------------------------------------------------------------------


def test_models_that_attend_to_everything_can_be_branched():
    assert can_branch(model_of())
    assert can_branch(model_of("llama", torch.float32))


def test_a_sliding_window_cannot_be_branched():
    sliding = {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}
    assert not can_branch(model_of(**sliding))


def test_a_model_whose_packed_forward_disagrees_is_not_branched(monkeypatch):
    monkeypatch.setattr(forward, "build_tree", physical_positions)
    assert not can_branch(model_of())


@pytest.mark.parametrize("asks", [{"softcap": 30.0}, {"s_aux": torch.zeros(4)}, {"sliding_window": 8}])
def test_a_layer_that_asks_for_more_than_scores_and_softmax_is_refused(asks):
    tree = build_tree(ragged_tasks()[0])
    split = attention.attention_of("split", tree, "cpu", torch.float64)
    states = torch.zeros(1, 4, tree.tokens, 8, dtype=torch.float64)
    with pytest.raises(ValueError, match="ask for more"):
        attention._attend(None, states, states, states, None, belief_attention=split, **asks)


def test_a_model_is_left_with_the_attention_it_had():
    model = model_of()
    before = model.config._attn_implementation
    packed_beliefs(model, ragged_tasks())
    assert model.config._attn_implementation == before


def test_no_score_is_computed_that_a_mask_would_hide(monkeypatch):
    """Keys of every attention call: a trunk by itself, or a cut's prefix with that cut's branches."""
    model, asked = model_of(), []
    right = attention.scaled_dot_product_attention

    def seen(query, key, value, **options):
        asked.append((query.shape[-2], key.shape[-2]))
        return right(query, key, value, **options)

    monkeypatch.setattr(attention, "scaled_dot_product_attention", seen)
    task = ragged_tasks()[0]  # wrapper 3, answers of 2, 4 and 1 tokens, whose last tokens are no inputs: 7 a cut
    packed_beliefs(model, [task])
    assert asked == [(40, 40), *((7, cut + 7) for cut in task.cuts)] * 3


def test_the_head_sees_places_that_predict_an_answer_only():
    model, seen = model_of(dtype=torch.float32), []
    linear = torch.nn.functional.linear

    def counted(hidden, weight, bias=None):
        if weight.shape[0] == VOCABULARY:
            seen.append((tuple(hidden.shape), weight.dtype))
        return linear(hidden, weight, bias)

    trees = [build_tree(task) for task in ragged_tasks()]
    row = forward.row_of(trees, "cpu", torch.float32, "split")
    torch.nn.functional.linear = counted
    try:
        gold_logprobs(model, row)
    finally:
        torch.nn.functional.linear = linear
    assert seen == [((3 * 4 * 7, 32), torch.float32)]
