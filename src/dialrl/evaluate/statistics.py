"""Intervals and figures for comparing policies: bootstrap over scenarios, Wilson, detectable difference, IQM.

The unit that is drawn again is the *scenario* with all its dialogues: dialogues on one scenario are alike, and drawing
them one by one would promise too narrow intervals. Pure numpy; every random draw comes from the seed given. Source:
docs/stages/evaluate-empa.md. Not here: which figures are compared (``empa`` and the other evaluations).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dialrl.errors import InputError

Floats = NDArray[np.float64]
RESAMPLES = 10_000
_BLOCK = 500  # resamples drawn at a time, so that memory stays small with many scenarios


@dataclass(frozen=True)
class Interval:
    """An interval of the confidence ``level`` it was made for."""

    low: float
    high: float

    def to_json(self) -> dict[str, float]:
        return {"low": self.low, "high": self.high}


def scenario_bootstrap(
    value_DM: ArrayLike, scenario_D: Sequence[str], *, resamples: int = RESAMPLES, seed: int = 0
) -> Floats:
    """Means of M figures over dialogues, (D, M) -> (resamples, M), drawing whole scenarios with replacement.

    A resample draws as many scenarios as there are; the mean is over all dialogues of the scenarios drawn, so each
    dialogue weighs the same. One scenario only: every resample equals the mean. Raises InputError for no dialogue.

    Example: scenario a with dialogues 1 and 3, b with 8: the draws aa, ab, ba, bb have means 2, 4, 4, 8.
    """
    value = np.asarray(value_DM, dtype=np.float64)
    if value.ndim != 2 or len(value) == 0 or len(value) != len(scenario_D):
        raise InputError(
            f"Bootstrap got values of shape {value.shape} for {len(scenario_D)} dialogues; expected (D, M)."
        )
    _, scenario = np.unique(np.asarray(scenario_D), return_inverse=True)
    number_S = np.bincount(scenario).astype(np.float64)
    total_SM = np.stack([np.bincount(scenario, weights=column) for column in value.T], axis=1)
    drawn = [times @ total_SM / (times @ number_S)[:, None] for times in _draws(len(number_S), resamples, seed)]
    return np.concatenate(drawn)


def _draws(scenarios: int, resamples: int, seed: int) -> Iterator[Floats]:
    """How often each scenario is drawn, in blocks of (B, S); each row sums to S."""
    generator = np.random.default_rng(seed)
    shares = np.full(scenarios, 1.0 / scenarios)
    for start in range(0, resamples, _BLOCK):
        rows = min(_BLOCK, resamples - start)
        yield generator.multinomial(scenarios, shares, size=rows).astype(np.float64)


def percentile_interval(value_B: ArrayLike, level: float = 0.95) -> Interval:
    """The central ``level`` of bootstrap values. Example: 0, 1, ..., 100 at 0.90 -> 5 to 95."""
    outside = 50.0 * (1.0 - level)
    low, high = np.percentile(np.asarray(value_B, dtype=np.float64), [outside, 100.0 - outside])
    return Interval(float(low), float(high))


def wilson_interval(successes: float, trials: int, level: float = 0.95) -> Interval:
    """Score interval of a share (Wilson 1927); 0 to 1 when nothing was tried.

    Example: 2 of 30 at 0.95 -> 0.0185 to 0.2132.
    """
    if not 0 <= successes <= trials:
        raise InputError(f"{successes} successes of {trials} trials: expected 0 <= successes <= trials.")
    if trials == 0:
        return Interval(0.0, 1.0)
    z = _quantile(level)
    share, spread = successes / trials, z * z / trials
    centre = (share + spread / 2) / (1 + spread)
    half = z * np.sqrt(share * (1 - share) / trials + spread / (4 * trials)) / (1 + spread)
    return Interval(max(0.0, float(centre - half)), min(1.0, float(centre + half)))


def smallest_detectable_difference(
    standard_error: float, *, level: float = 0.95, power: float = 0.8, paired: bool = False
) -> float:
    """The difference between two policies that an evaluation of this size shows with probability ``power``.

    Both are taken to be evaluated apart, each with this standard error: (z_level + z_power) * sqrt(2) * SE. ``paired``:
    the error is that of the difference itself, on the same scenarios, so there is no sqrt(2).
    Example: SE 1 at 0.95, 0.8 -> (1.960 + 0.842) * 1.414 = 3.96; paired 2.80.
    """
    both = 1.0 if paired else np.sqrt(2.0)
    return float((_quantile(level) + NormalDist().inv_cdf(power)) * both * standard_error)


def standard_error(value_B: ArrayLike) -> float:
    """Standard deviation of bootstrap values (sample); 0 for fewer than two."""
    values = np.asarray(value_B, dtype=np.float64)
    return float(values.std(ddof=1)) if len(values) > 1 else 0.0


def interquartile_mean(values: ArrayLike) -> float:
    """Mean of the middle half, a quarter of the weight cut off at each end (Agarwal et al. 2021, arXiv 2108.13264).

    Where the number of values is no multiple of 4 the values at the cuts count in part. Raises InputError for none.
    Example: 1, 2, 3, 40 -> 2.5; 1, 2, 30 -> (0.25 * 1 + 1 * 2 + 0.25 * 30) / 1.5 = 6.5.
    """
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    number = len(ordered)
    if number == 0:
        raise InputError("The interquartile mean of no values is not known; give at least one.")
    rank = np.arange(number, dtype=np.float64)
    kept = np.clip(np.minimum(rank + 1, 0.75 * number) - np.maximum(rank, 0.25 * number), 0.0, None)
    return float(ordered @ kept / kept.sum())


def mean_or_none(values: Sequence[float]) -> float | None:
    """Mean of some values, None of none: what is not known is not 0."""
    return sum(values) / len(values) if values else None


def _quantile(level: float) -> float:
    """Two-sided normal quantile: 1.960 at 0.95."""
    return NormalDist().inv_cdf(0.5 + level / 2)
