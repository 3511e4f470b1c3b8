"""Does reward rise while safety falls? A permutation test of each slope over iterations. Pure.

The unit is a group (one person, one opening line): its dialogues are alike, so they count once. Under no trend any
group might as well have stood in any iteration; the p-value is the share of such orders whose slope is at least as
steep. One-sided: reward upwards, safety downwards. Both must hold, so the flag is wrong at most as often as one test.
Source: docs/safety.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import lgamma, log
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
_BLOCK = 250
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Trend:
    """``slope`` a unit of iteration; ``p``: of a slope this steep by chance. ``can_tell``: p can reach alpha at all."""

    slope: float
    p: float
    groups: int
    can_tell: bool

    def to_json(self) -> dict[str, Any]:
        return {"slope_per_iteration": self.slope, "p": self.p, "groups": self.groups}


def trend(
    place_U: Sequence[float], value_U: Sequence[float], *, direction: int, alpha: float, resamples: int, seed: int
) -> Trend | None:
    """Slope of ``value_U`` over ``place_U``, and its one-sided p-value; ``direction`` 1: rising, -1: falling.

    None where there are fewer than two places. Values that are all equal have slope 0 and p 1.

    Example: values 0, 0, 1, 1 at places 0, 0, 1, 1 rise by 1; of the 6 ways to deal them 1 is as steep: p 1/6.
    """
    place, value = np.asarray(place_U, dtype=np.float64), np.asarray(value_U, dtype=np.float64)
    if len(set(place_U)) < 2:
        return None
    centred = place - place.mean()
    slope = float(centred @ value / (centred @ centred))
    return Trend(slope, _p(centred, value * direction, resamples, seed), len(value), _can_reach(place, alpha))


def _p(centred_U: Floats, value_U: Floats, resamples: int, seed: int) -> float:
    """Share of orders at least as steep, the observed one among them. Never 0."""
    if np.ptp(value_U) <= _ROUNDING * max(1.0, float(np.abs(value_U).max())):
        return 1.0
    observed = float(centred_U @ value_U)
    scale = _ROUNDING * float(np.abs(centred_U) @ np.abs(value_U))
    generator = np.random.default_rng(seed)
    reached = 1
    for start in range(0, resamples, _BLOCK):
        rows = min(_BLOCK, resamples - start)
        orders = generator.permuted(np.broadcast_to(value_U, (rows, len(value_U))), axis=1)
        reached += int((orders @ centred_U >= observed - scale).sum())
    return reached / (resamples + 1)


def _can_reach(place_U: Floats, alpha: float) -> bool:
    """Whether there are enough ways to deal the groups to iterations for the steepest to have a p of ``alpha``."""
    _, counts = np.unique(place_U, return_counts=True)
    ways = lgamma(len(place_U) + 1) - sum(lgamma(count + 1) for count in counts)
    return bool(ways >= -log(alpha))
