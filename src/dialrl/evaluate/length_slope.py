"""How much a grade rises with the length of replies of the same worth: a slope within groups, its interval. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dialrl.evaluate.statistics import percentile_interval, scenario_bootstrap
from dialrl.ragged import Floats


@dataclass(frozen=True)
class Slope:
    """Points of score a doubling of the length; over so many replies in groups of two or more."""

    value: float
    low: float
    high: float
    replies: int


def length_slope(
    characters_K: Sequence[int],
    score_K: Sequence[float],
    group_K: Sequence[object],
    unit_K: Sequence[str],
    *,
    resamples: int,
    seed: int,
    confidence: float,
) -> Slope | None:
    """Least squares of score on log2(characters + 1) within groups; None where no group has two lengths.

    The interval draws whole units (states, scenarios). Example: one group, lengths 63 and 255, scores 1 and 3 -> two
    doublings for two points, a slope of 1.
    """
    length_K = np.log2(np.asarray(characters_K, dtype=np.float64) + 1.0)
    known_K = np.asarray(score_K, dtype=np.float64)
    both_K2 = _centred(np.stack([length_K, known_K], axis=1), group_K)
    square_K = both_K2[:, 0] ** 2
    if not square_K.sum() > 1e-12:
        return None
    products = np.stack([both_K2[:, 0] * both_K2[:, 1], square_K], axis=1)
    drawn = scenario_bootstrap(products, unit_K, resamples=resamples, seed=seed)
    defined = drawn[:, 1] > 1e-12
    interval = percentile_interval(drawn[defined, 0] / drawn[defined, 1], confidence)
    value = float(products[:, 0].sum() / products[:, 1].sum())
    return Slope(value, interval.low, interval.high, int((square_K > 0).sum()))


def _centred(value_KM: Floats, group_K: Sequence[object]) -> Floats:
    """Values less the mean of their group."""
    places: dict[object, list[int]] = {}
    for place, group in enumerate(group_K):
        places.setdefault(group, []).append(place)
    centred = value_KM.copy()
    for held in places.values():
        centred[held] -= value_KM[held].mean(axis=0)
    return centred
