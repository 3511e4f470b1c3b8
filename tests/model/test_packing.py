"""Sequences become model inputs by their lengths, and every trained token has the place that predicts it."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dialrl.model.packing import TokenSequence, concatenate_sequences, pad_sequences, plan_batches, plan_bins


def sequence(ids: list[int], trained: list[int]) -> TokenSequence:
    return TokenSequence(np.array(ids, dtype=np.int64), np.array(trained, dtype=np.int64))


def test_the_hidden_state_before_a_token_predicts_it() -> None:
    # Field case 4: prompt 2, reply 3, user 2, reply 2; mask 0 0 1 1 1 0 0 1 1; the first predicting place is 1.
    batch = pad_sequences([sequence([10, 11, 1, 2, 9, 12, 13, 3, 9], [2, 3, 4, 7, 8])])
    assert batch.predicting_places.tolist() == [1, 2, 3, 6, 7]
    assert batch.targets_T.tolist() == [1, 2, 9, 3, 9]


def test_a_padding_token_that_equals_the_end_of_turn_is_no_padding() -> None:
    # Field case 7: pad = eos = 9, rows [4, 5, 9] and [4, 9]; the 9s are real and trained.
    batch = pad_sequences([sequence([4, 5, 9], [1, 2]), sequence([4, 9], [1])])
    assert batch.targets_T.tolist() == [5, 9, 9]
    assert batch.predicting_places.tolist() == [0, 1, 2]  # rows are 2 wide: the last token is predicted, never read


def test_what_follows_the_last_trained_token_is_not_read() -> None:
    batch = pad_sequences([sequence([4, 5, 6, 7, 8], [2])])
    assert batch.input_ids.tolist() == [[4, 5]]


def test_similar_lengths_share_a_batch_within_the_budget() -> None:
    assert plan_batches([3, 10, 4, 9], 20) == [[1, 3], [2, 0]]


def test_a_sequence_longer_than_the_budget_stands_alone() -> None:
    assert plan_batches([50, 3, 3], 10) == [[0], [1, 2]]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 40), max_size=30), st.integers(1, 100))
def test_every_sequence_is_in_exactly_one_batch_and_budgets_hold(lengths: list[int], budget: int) -> None:
    plan = plan_batches(lengths, budget)
    assert sorted(index for batch in plan for index in batch) == list(range(len(lengths)))
    for batch in plan:
        assert len(batch) == 1 or len(batch) * max(lengths[i] for i in batch) <= budget


def test_no_trained_place_reads_padding() -> None:
    batch = pad_sequences([sequence([1, 2, 3, 4, 5, 6], [5]), sequence([7, 8], [1])])
    padding = torch.tensor([[False] * 5, [False, True, True, True, True]]).flatten()
    assert not padding[batch.predicting_places].any()


def test_concatenated_sequences_have_no_padding_and_count_positions_anew() -> None:
    batch = concatenate_sequences([sequence([4, 5, 9], [1, 2]), sequence([4, 9], [1]), sequence([1, 2, 3, 4], [3])])
    assert batch.input_ids.tolist() == [[4, 5, 4, 1, 2, 3]]
    assert batch.position_ids is not None
    assert batch.position_ids.tolist() == [[0, 1, 0, 0, 1, 2]]
    assert batch.bounds is not None
    assert (batch.bounds.tolist(), batch.longest) == ([0, 2, 3, 6], 3)
    assert (batch.predicting_places.tolist(), batch.targets_T.tolist()) == ([0, 1, 2, 5], [5, 9, 9, 4])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 40), max_size=30), st.integers(1, 100))
def test_bins_hold_every_sequence_once_within_the_budget(lengths: list[int], budget: int) -> None:
    plan = plan_bins(lengths, budget)
    assert sorted(index for batch in plan for index in batch) == list(range(len(lengths)))
    for batch in plan:
        assert len(batch) == 1 or sum(lengths[i] for i in batch) <= budget
