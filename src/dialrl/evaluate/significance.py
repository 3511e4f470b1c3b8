"""Is a paired difference more than luck: sign-flip test, effect size, Holm's correction. Pure numpy.

scipy has the test too (``permutation_test`` with ``permutation_type="samples"``; a test holds ours against it), but
comparing needs no extra. Not here: which differences are tested (``compare_scores``).
"""

from collections.abc import Sequence

import numpy as np

from dialrl.ragged import Floats

EXACT_UP_TO = 12  # 2^12 sign patterns are fewer than the random ones
_BLOCK = 500
_ROUNDING = 1e-12


def sign_flip_p(difference_S: Floats, *, resamples: int = 10_000, seed: int = 0) -> float:
    """Two-sided p-value of a mean of paired differences: under no effect each sign is as likely as its opposite.

    All 2^S sign patterns up to 12 differences, else ``resamples`` random ones and the observed one. Never 0; 1 where
    all differences are 0. Example: 1, 2, 3 -> the observed mean is reached by +++ and ---: 2 / 8 = 0.25.
    """
    observed = abs(float(difference_S.sum()))
    scale = _ROUNDING * float(np.abs(difference_S).sum())
    if len(difference_S) <= EXACT_UP_TO:
        patterns = np.array(np.meshgrid(*[[1.0, -1.0]] * len(difference_S))).reshape(len(difference_S), -1).T
        return float((np.abs(patterns @ difference_S) >= observed - scale).mean())
    generator = np.random.default_rng(seed)
    reached = 1
    for start in range(0, resamples, _BLOCK):
        signs = generator.choice([1.0, -1.0], size=(min(_BLOCK, resamples - start), len(difference_S)))
        reached += int((np.abs(signs @ difference_S) >= observed - scale).sum())
    return reached / (resamples + 1)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's correction of p-values of one family (Holm 1979), in the given order.

    The smallest is multiplied by their number, the next by one less, and so on; none falls below one before it.
    Example: 0.01, 0.04, 0.03 -> 0.03, 0.06, 0.06.
    """
    corrected = [0.0] * len(p_values)
    least = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda place: p_values[place])):
        least = max(least, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = least
    return corrected


def paired_effect_size(difference_S: Floats) -> float | None:
    """Mean difference over the standard deviation of the differences (Cohen's d_z); None without a spread.

    Example: 1, 2, 3 -> 2 / 1 = 2.
    """
    if len(difference_S) < 2:
        return None
    spread = float(difference_S.std(ddof=1))
    return float(difference_S.mean()) / spread if spread > _ROUNDING else None
