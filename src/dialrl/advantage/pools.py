"""Centring and scaling of values by pool: the one piece of mathematics behind every preset.

z over a pool S: (x - mean S) / (std S + 1e-8), population std, float64, two passes. A pool of fewer than two members,
or whose std is at most 1e-6 * max(1, |mean|), is *degenerate*: its values become exactly 0, and it is counted. Source:
docs/credit.md 0 and 2. Not here: which values and scopes a preset takes (``terms``), and files.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from dialrl.ragged import Flags, Floats, Pools, divided

Spread = Literal["population", "sample"]

EPSILON = 1e-8
DEGENERATE = 1e-6


@dataclass(frozen=True)
class Moments:
    """Members, mean and sum of squared deviations of each of P pools; mergeable, so a file can be read in pieces."""

    number_P: Floats
    mean_P: Floats
    squares_P: Floats

    @classmethod
    def of(cls, value_N: Floats, member_N: Flags | None, pools: Pools) -> "tuple[Moments, Floats]":
        """Moments over the members of each pool, and every value's deviation from its pool's mean (N,).

        Two passes: the mean, then the squared deviations from it. ``member_N`` None: all are members. Pools without
        members have mean 0. Example: (1.0, .3, .8), one pool -> number 3, mean .7, squares .26.
        """
        if member_N is None:
            number_P = pools.sizes(len(value_N))
            mean_P = np.nan_to_num(divided(pools.total(value_N), number_P))
            deviation_N = value_N - pools.each(mean_P)
            return cls(number_P, mean_P, pools.total(deviation_N * deviation_N)), deviation_N
        number_P = pools.total(member_N.astype(np.float64))
        mean_P = np.nan_to_num(divided(pools.total(np.where(member_N, value_N, 0.0)), number_P))
        deviation_N = value_N - pools.each(mean_P)
        return cls(number_P, mean_P, pools.total(np.where(member_N, deviation_N * deviation_N, 0.0))), deviation_N

    @classmethod
    def by_dialogue(
        cls, value_K: Floats, member_K: Flags | None, pools: Pools, dialogues: Pools, pools_of_dialogues: Pools
    ) -> "tuple[Moments, Floats]":
        """Moments of pools whose members are dialogues, each by the mean of its turns; deviations of the turns (K,).

        ``pools`` and ``dialogues``: of the turns; ``pools_of_dialogues``: of the dialogues. The spread is that of the
        turns, so that pools are degenerate where no turn differs from another. Example, one pool of the dialogues
        (1.0, .5, .8) and (.3, .6): means .7667 and .45, number 2, mean .6083; the first turn is .3917 above it.
        """
        members_K = np.ones(len(value_K)) if member_K is None else member_K.astype(np.float64)
        number_D = dialogues.total(members_K)
        mean_D = np.nan_to_num(divided(dialogues.total(value_K * members_K), number_D))
        own, _ = cls.of(mean_D, number_D > 0, pools_of_dialogues)
        turns, _ = cls.of(value_K, member_K, pools)
        squares_P = own.number_P * np.nan_to_num(divided(turns.squares_P, turns.number_P))
        return cls(own.number_P, own.mean_P, squares_P), value_K - pools.each(own.mean_P)

    @classmethod
    def none(cls) -> "Moments":
        """One pool without members: where merging begins."""
        return cls(np.zeros(1), np.zeros(1), np.zeros(1))

    def merged(self, other: "Moments") -> "Moments":
        """Moments of both together, pool by pool (Chan, Golub and LeVeque 1979): exact up to rounding."""
        number_P = self.number_P + other.number_P
        share_P = np.nan_to_num(divided(other.number_P, number_P))
        gap_P = other.mean_P - self.mean_P
        squares_P = self.squares_P + other.squares_P + gap_P * gap_P * self.number_P * share_P
        return Moments(number_P, self.mean_P + gap_P * share_P, squares_P)

    def spread(self, kind: Spread) -> Floats:
        """Standard deviation, (P,); 0 where there are too few members for one."""
        freedom_P = self.number_P if kind == "population" else self.number_P - 1
        return np.sqrt(np.divide(self.squares_P, freedom_P, out=np.zeros_like(self.squares_P), where=freedom_P > 0))

    def comparable(self) -> Flags:
        """Pools whose values can be compared, (P,): two members or more, and a spread that is not rounding."""
        least_P = DEGENERATE * np.maximum(1.0, np.abs(self.mean_P))
        return (self.number_P >= 2) & (self.spread("population") > least_P)


@dataclass(frozen=True)
class PoolReport:
    """What a set of pools looked like: how many had members, were degenerate, had two members; the sum of spreads."""

    pools: int = 0
    degenerate: int = 0
    pairs: int = 0
    spread_total: float = 0.0

    @classmethod
    def of(cls, moments: Moments, kind: Spread) -> "PoolReport":
        comparable_P = moments.comparable()
        pools = int((moments.number_P > 0).sum())
        pairs = int((comparable_P & (moments.number_P == 2)).sum())
        return cls(pools, pools - int(comparable_P.sum()), pairs, float(moments.spread(kind).sum()))

    def __add__(self, other: "PoolReport") -> "PoolReport":
        return PoolReport(
            self.pools + other.pools,
            self.degenerate + other.degenerate,
            self.pairs + other.pairs,
            self.spread_total + other.spread_total,
        )


def centred(deviation_N: Floats, pools: Pools, moments: Moments, *, leave_one_out: bool = False) -> Floats:
    """Values minus their pool's mean (of the *other* members with ``leave_one_out``); exactly 0 in degenerate pools.

    ``deviation_N``: the values minus their pool's mean, as ``Moments.of`` gives them.
    Example: 2.3 and .9 in one pool -> +.7, -.7; leave-one-out +1.4, -1.4. A pool of one -> 0.
    """
    factor_P = _others_factor(moments) if leave_one_out else np.ones_like(moments.mean_P)
    return deviation_N * pools.each(np.where(moments.comparable(), factor_P, 0.0))


def scaled(
    value_N: Floats,
    pools: Pools,
    moments: Moments,
    *,
    kind: Spread = "population",
    least: float = 0.0,
    leave_one_out: bool = False,
) -> Floats:
    """Values divided by their pool's spread (+ 1e-8; at least ``least``); exactly 0 in degenerate pools.

    Of deviations from the same pool this makes z (docs/credit.md 2, group 0: (1.0, .5, .8), (.3, .6) -> 1.4897 for the
    first); with ``leave_one_out`` of deviations from the mean of the others, whose spread is wider too.
    Example: +.7, -.7 with spread .7 -> +1, -1.
    """
    factor_P = _others_factor(moments) if leave_one_out else np.ones_like(moments.mean_P)
    factor_P /= np.maximum(moments.spread(kind) * factor_P, least) + EPSILON
    return value_N * pools.each(np.where(moments.comparable(), factor_P, 0.0))


def _others_factor(moments: Moments) -> Floats:
    """n / (n - 1): what turns a deviation from the mean into one from the mean of the others; 0 with no other."""
    number_P = moments.number_P
    return np.divide(number_P, number_P - 1, out=np.zeros_like(number_P), where=number_P > 1)
