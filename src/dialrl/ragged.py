"""Arithmetic on ragged dialogues laid end to end: sums and means by pool, discounted returns, filling by means.

``returns`` and ``advantage`` both stand on it. Arrays are flat, float64, in file order; a *pool* is any set of values
that are compared with each other. No loop over dialogues or groups. Not here: which values form a pool, and any column.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class Pools(Protocol):
    """A partition of N values into P pools."""

    def sizes(self, values: int) -> Floats:
        """Number of values in each pool, (P,), when there are N = ``values`` of them."""

    def total(self, value_N: Floats) -> Floats:
        """Sum of each pool's values, (N,) -> (P,)."""

    def each(self, value_P: Floats) -> Floats:
        """Every value's pool's entry, (P,) -> something that broadcasts to (N,)."""


@dataclass(frozen=True)
class Whole:
    """All values form one pool."""

    def sizes(self, values: int) -> Floats:
        return np.array([float(values)])

    def total(self, value_N: Floats) -> Floats:
        return np.array([value_N.sum()])

    def each(self, value_P: Floats) -> Floats:
        return value_P  # (1,) broadcasts


@dataclass(frozen=True)
class Runs:
    """Pools of neighbouring values: pool p holds the values ``start[p]:start[p + 1]``, none is empty."""

    start: Ints

    @cached_property
    def _lengths(self) -> Ints:
        return np.diff(self.start)

    def sizes(self, values: int) -> Floats:
        return self._lengths.astype(np.float64)

    def total(self, value_N: Floats) -> Floats:
        return np.add.reduceat(value_N, self.start[:-1]) if len(self.start) > 1 else np.zeros(0)

    def each(self, value_P: Floats) -> Floats:
        return np.repeat(value_P, self._lengths)


@dataclass(frozen=True)
class Scattered:
    """Pools by number: value i belongs to pool ``pool_N[i]`` of ``count`` (some may be empty)."""

    pool_N: Ints
    count: int

    def sizes(self, values: int) -> Floats:
        return np.bincount(self.pool_N, minlength=self.count).astype(np.float64)

    def total(self, value_N: Floats) -> Floats:
        return np.asarray(np.bincount(self.pool_N, weights=value_N, minlength=self.count), dtype=np.float64)

    def each(self, value_P: Floats) -> Floats:
        return value_P.take(self.pool_N)


@dataclass(frozen=True)
class Stacked:
    """``copies`` arrays laid end to end, value i of each in the same pool: several signals that share their pools."""

    pools: Pools
    copies: int

    def sizes(self, values: int) -> Floats:
        return self.copies * self.pools.sizes(values // self.copies)

    def total(self, value_N: Floats) -> Floats:
        return np.asarray(np.sum([self.pools.total(part) for part in np.split(value_N, self.copies)], axis=0))

    def each(self, value_P: Floats) -> Floats:
        return np.tile(self.pools.each(value_P), self.copies)


def turn_pools(group_K: Ints, turn_K: Ints) -> Scattered:
    """Pools of the turns with the same group and the same turn index."""
    if len(turn_K) == 0:
        return Scattered(turn_K, 0)
    width = int(turn_K.max()) + 1
    groups = int(group_K[-1]) + 1
    pool_K = group_K * width + turn_K
    if groups * width <= 16 * len(turn_K) + 1024:
        return Scattered(pool_K, groups * width)
    # Turn indices with wide gaps: number only the pools that exist.
    found, dense_K = np.unique(pool_K, return_inverse=True)
    return Scattered(dense_K.astype(np.int64), len(found))


def mean(value_N: Floats, member_N: Flags, pools: Pools) -> tuple[Floats, Floats]:
    """Mean of each pool's members and their number, (P,) each; the mean of no members is NaN.

    Example: values (1, 2, 9), members (yes, yes, no), one pool -> mean 1.5, number 2.
    """
    number_P = pools.total(member_N.astype(np.float64))
    total_P = pools.total(np.where(member_N, value_N, 0.0))
    return divided(total_P, number_P), number_P


def divided(numerator: Floats, denominator: Floats) -> Floats:
    """Quotient, NaN where the denominator is 0."""
    return np.divide(numerator, denominator, out=np.full_like(numerator, np.nan), where=denominator != 0)


def discounted(reward_K: Floats, dialogue_start: Ints, turn_K: Ints, gamma: float) -> Floats:
    """Return-to-go of each turn, (K,): G_k = sum over the dialogue's turns j >= k of gamma^(turn_j - turn_k) r_j.

    ``dialogue_start`` (D+1,) are the row offsets of the dialogues, ``turn_K`` the real turn indices (a gap in them is
    time that passed). Every reward must be a number: what does not count is 0. Source: docs/credit.md 0.

    The loop runs over positions counted from the end of the dialogues, all dialogues at once.
    Example, gamma .85: (1.0, .5, .8) -> .8; .5 + .85 * .8 = 1.18; 1.0 + .85 * 1.18 = 2.003.
    """
    return_K = np.array(reward_K, dtype=np.float64)
    if gamma == 0.0 or len(return_K) == 0:
        return return_K
    length_D = np.diff(dialogue_start)
    row_D = dialogue_start[1:] - 1
    step_K = turn_K[1:] - turn_K[:-1]  # from each turn to the next; of a last turn meaningless
    even = _all_one(step_K, row_D)
    for position in range(1, int(length_D.max())):
        alive_D = length_D > position
        if not alive_D.all():
            length_D, row_D = length_D[alive_D], row_D[alive_D]
        later = return_K[row_D]
        row_D = row_D - 1
        later *= gamma if even else gamma ** step_K[row_D].astype(np.float64)
        return_K[row_D] += later
    return return_K


def _all_one(step_K: Ints, last_row_D: Ints) -> bool:
    """True when no dialogue has a gap in its turn indices."""
    gaps_K = step_K != 1
    gaps_K[last_row_D[:-1]] = False
    return not gaps_K.any()


@dataclass(frozen=True)
class Filled:
    """``value_K`` with missing entries replaced; how many by a turn's mean, by the group's, and still open."""

    value_K: Floats
    by_turn: int
    by_group: int
    open_K: Flags


def fill_by_means(
    value_K: Floats, known_K: Flags, missing_K: Flags, group_start: Ints, group_K: Ints, turn_K: Ints
) -> Filled:
    """Replace the ``missing`` values by the mean of the known ones of their group at that turn index, else the group's.

    What has neither stays open (``open_K``): the caller fills it by the file's mean. Values neither known nor missing
    are left alone and in no mean. Source: docs/credit.md 1.
    Example: one group, dialogues (1, ?, .8) and (.3, .6, .9) -> (1, .6, .8) and (.3, .6, .9).
    """
    rows = np.flatnonzero(missing_K)
    if len(rows) == 0:
        return Filled(value_K, 0, 0, missing_K)
    filled_K = value_K.copy()
    by_turn = _mean_at(rows, value_K, known_K, turn_pools(group_K, turn_K))
    by_group = _mean_at(rows, value_K, known_K, Runs(group_start))
    filled_K[rows] = np.where(np.isnan(by_turn), by_group, by_turn)
    open_K = np.zeros_like(missing_K)
    open_K[rows] = np.isnan(filled_K[rows])
    from_turn = int((~np.isnan(by_turn)).sum())
    return Filled(filled_K, from_turn, len(rows) - from_turn - int(open_K.sum()), open_K)


def _mean_at(rows: Ints, value_K: Floats, known_K: Flags, pools: Pools) -> Floats:
    mean_P, _ = mean(value_K, known_K, pools)
    return pools.each(mean_P)[rows]
