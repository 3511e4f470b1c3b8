"""Sums, returns and fills over dialogues laid end to end."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dialrl.ragged import Runs, Stacked, Whole, discounted, fill_by_means, turn_pools

LENGTHS = st.lists(st.integers(1, 9), min_size=1, max_size=12)


def starts(lengths: list[int]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def test_a_return_discounts_every_later_turn() -> None:
    got = discounted(np.array([1.0, 0.5, 0.8, 0.3, 0.6]), starts([3, 2]), np.array([0, 1, 2, 0, 1]), 0.85)
    assert got == pytest.approx([2.003, 1.18, 0.8, 0.81, 0.6])


@given(LENGTHS, st.sampled_from([0.0, 0.5, 0.85, 1.0]), st.integers(1, 3), st.integers(0, 2**32))
@settings(max_examples=60)
def test_returns_equal_a_plain_loop(lengths: list[int], gamma: float, widest_gap: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    reward = generator.normal(size=sum(lengths))
    turn = np.concatenate([np.cumsum(generator.integers(1, widest_gap + 1, n)) for n in lengths])
    start = starts(lengths)
    want = [
        sum(gamma ** float(turn[j] - turn[k]) * reward[j] for j in range(k, stop))
        for first, stop in pairwise(start)
        for k in range(first, stop)
    ]
    np.testing.assert_allclose(discounted(reward, start, turn, gamma), want, rtol=0, atol=1e-12)


def test_turn_pools_join_equal_turns_of_a_group_only() -> None:
    pools = turn_pools(np.array([0, 0, 0, 1]), np.array([0, 1, 0, 0]))
    assert pools.total(np.array([1.0, 10.0, 2.0, 5.0]))[[0, 1, 2]].tolist() == [3.0, 10.0, 5.0]


def test_wide_gaps_in_turn_indices_cost_no_memory() -> None:
    pools = turn_pools(np.array([0, 0, 0, 1]), np.array([0, 10**9, 0, 0]))
    assert pools.count == 3
    assert pools.each(pools.total(np.array([1.0, 10.0, 2.0, 5.0]))).tolist() == [3.0, 10.0, 3.0, 5.0]


def test_stacked_signals_share_their_pools() -> None:
    pools = Stacked(Runs(np.array([0, 2, 3])), 2)
    value = np.array([1.0, 2.0, 3.0, 10.0, 20.0, 30.0])
    assert pools.total(value).tolist() == [33.0, 33.0]
    assert pools.sizes(6).tolist() == [4.0, 2.0]
    assert pools.each(np.array([1.0, 2.0])).tolist() == [1.0, 1.0, 2.0, 1.0, 1.0, 2.0]


def test_one_pool_of_everything() -> None:
    assert Whole().total(np.array([1.0, 2.0])).tolist() == [3.0]


def test_missing_values_take_the_turns_mean_then_the_groups_then_stay_open() -> None:
    value = np.array([1.0, 0.0, 0.0, 3.0, 5.0, 0.0])
    missing = np.array([False, True, True, False, False, True])
    group, turn = np.array([0, 0, 0, 0, 0, 1]), np.array([0, 1, 2, 0, 1, 0])
    filled = fill_by_means(value, ~missing, missing, np.array([0, 5, 6]), group, turn)
    assert filled.value_K[:5].tolist() == [1.0, 5.0, 3.0, 3.0, 5.0]
    assert filled.open_K.tolist() == [False] * 5 + [True]
    assert (filled.by_turn, filled.by_group) == (1, 1)
