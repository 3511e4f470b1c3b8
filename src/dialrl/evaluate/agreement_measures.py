"""How far raters agree: quadratic-weighted kappa, Krippendorff's alpha, Gwet's AC2, and increments as vectors.

Pure functions on arrays; a rating that is missing is NaN and is never filled. Alpha is the library ``krippendorff``'s
(extra ``stats``). The other two are here because no library does them beside numpy 2: a test holds them against the
values of irrCAC 0.4.4 and scikit-learn. Sources: Cohen 1968; Krippendorff 2018, ch. 12; Gwet 2014, ch. 4. Not here:
files, and which ratings are compared.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dialrl.errors import missing_extra
from dialrl.ragged import Flags, Floats

_ROUNDING = 1e-12


def level_pairs(first_K: Floats, second_K: Floats, levels: Sequence[int]) -> tuple[Floats, Flags]:
    """Each unit that both raters rated as a table with a single 1, (U, L, L), and which units those are, (K,).

    Their sum is the confusion table, first rater by rows. Example: levels 0, 1; ratings (0, 1, NaN) and (1, 1, 0) ->
    [[0, 1], [0, 0]], [[0, 0], [0, 1]] and (yes, yes, no).
    """
    known_K = ~np.isnan(first_K) & ~np.isnan(second_K)
    rows, columns = (np.searchsorted(np.asarray(levels), rating_K[known_K]) for rating_K in (first_K, second_K))
    table_ULL = np.zeros((len(rows), len(levels), len(levels)))
    table_ULL[np.arange(len(rows)), rows, columns] = 1.0
    return table_ULL, known_K


def quadratic_kappa(table_BLL: Floats, levels: Sequence[int]) -> Floats:
    """Cohen's kappa with quadratic weights of confusion tables, (B, L, L) -> (B,); NaN where nothing can be expected.

    1 - sum d^2 observed / sum d^2 expected by the two raters' own frequencies. NaN: no unit, or both raters gave one
    and the same level throughout. Example: [[4, 1], [1, 4]] -> 1 - 2 / 5 = 0.6.
    """
    levels_L = np.asarray(levels, dtype=np.float64)
    squared_LL = np.square(levels_L[:, None] - levels_L[None, :])
    number_B = table_BLL.sum(axis=(1, 2))
    number_B = np.where(number_B > 0, number_B, 1.0)
    expected_BLL = table_BLL.sum(axis=2)[:, :, None] * table_BLL.sum(axis=1)[:, None, :] / number_B[:, None, None]
    observed_B = (squared_LL * table_BLL).sum(axis=(1, 2))
    expected_B = (squared_LL * expected_BLL).sum(axis=(1, 2))
    ratio_B = np.divide(observed_B, expected_B, out=np.full_like(observed_B, np.nan), where=expected_B > _ROUNDING)
    return np.asarray(1.0 - ratio_B)


def gwet_ac2(rating_RK: Floats, levels: Sequence[int]) -> float | None:
    """Gwet's AC2 with quadratic weights of R raters on K units, NaN where missing; None where no unit has two ratings.

    Agreement by chance comes from the mean frequency of each level, so that one dominant level does not destroy it.
    Example: ratings (0, 0, 1) and (0, 0, 0), levels 0, 1: observed 2/3; frequencies 5/6, 1/6; by chance 2 * 2 / (2 * 1)
    * 5/36 = 5/18; AC2 = (2/3 - 5/18) / (1 - 5/18) = 7/13.
    """
    count_KL = np.stack([(rating_RK == level).sum(axis=0) for level in levels], axis=1).astype(np.float64)
    number_K = count_KL.sum(axis=1)
    rated_K, paired_K = number_K >= 1, number_K >= 2
    if not paired_K.any() or len(levels) < 2:
        return None
    weight_LL = quadratic_weights(levels)
    agreeing_K = (count_KL * (count_KL @ weight_LL - 1.0)).sum(axis=1)
    observed = float((agreeing_K[paired_K] / (number_K * (number_K - 1.0))[paired_K]).mean())
    frequency_L = (count_KL[rated_K] / number_K[rated_K, None]).mean(axis=0)
    categories = len(levels)
    spread = float((frequency_L * (1.0 - frequency_L)).sum())
    by_chance = float(weight_LL.sum()) / (categories * (categories - 1)) * spread
    return (observed - by_chance) / (1.0 - by_chance)


def quadratic_weights(levels: Sequence[int]) -> Floats:
    """Agreement weights (L, L): 1 on the diagonal, 1 - (distance / widest distance)^2 elsewhere."""
    levels_L = np.asarray(levels, dtype=np.float64)
    return np.asarray(1.0 - np.square((levels_L[:, None] - levels_L[None, :]) / (levels_L.max() - levels_L.min())))


def ordinal_alpha(rating_RK: Floats, levels: Sequence[int]) -> float | None:
    """Krippendorff's alpha for ordinal levels of R raters on K units, NaN where missing.

    None where it is not defined: no unit with two ratings, or one level throughout. Raises MissingExtraError without
    the extra ``stats``. Example: (1, 0, 2, 0) and (1, 1, 2, missing): observed 8, expected 36 -> 1 - 8 / 36 = 0.7778.
    """
    try:
        import krippendorff
    except ImportError:
        raise missing_extra("stats", "krippendorff") from None
    paired_K = (~np.isnan(rating_RK)).sum(axis=0) >= 2
    values = np.unique(rating_RK[:, paired_K])
    if (~np.isnan(values)).sum() < 2:
        return None
    return float(
        krippendorff.alpha(
            reliability_data=rating_RK, value_domain=[float(level) for level in levels], level_of_measurement="ordinal"
        )
    )


@dataclass(frozen=True)
class IncrementAgreement:
    """Two raters' increments compared over the turns that both judged.

    ``cosine_K`` over the ``moving_K`` turns where neither is zero; ``zero_in_one`` and ``zero_in_both`` are shares of
    the turns; by axis: share of equal signs, mean of second - first, standard deviation of the second over the first's
    (NaN where that is 0).
    """

    turns: int
    cosine_K: Floats
    moving_K: Flags
    zero_in_one: float
    zero_in_both: float
    equal_sign_A: Floats
    offset_A: Floats
    spread_ratio_A: Floats


def compare_increments(first_KA: Floats, second_KA: Floats) -> IncrementAgreement | None:
    """Compare increments (K, A), NaN rows where missing; None where no turn was judged by both.

    Example: (1, 0), (0, 0) and (1, 1), (0, 2): cosine 0.7071 on the first turn, zero_in_one 0.5.
    """
    known_K: Flags = np.asarray(~(np.isnan(first_KA) | np.isnan(second_KA)).any(axis=1))
    if not known_K.any():
        return None
    first, second = first_KA[known_K], second_KA[known_K]
    lengths = np.linalg.norm(first, axis=1), np.linalg.norm(second, axis=1)
    still = np.stack([length == 0 for length in lengths])
    moving_K = known_K.copy()
    moving_K[known_K] = ~still.any(axis=0)
    both = ~still.any(axis=0)
    spread = first.std(axis=0)
    return IncrementAgreement(
        turns=int(known_K.sum()),
        cosine_K=(first * second).sum(axis=1)[both] / (lengths[0] * lengths[1])[both],
        moving_K=moving_K,
        zero_in_one=float((still.sum(axis=0) == 1).mean()),
        zero_in_both=float(still.all(axis=0).mean()),
        equal_sign_A=(np.sign(first) == np.sign(second)).mean(axis=0),
        offset_A=(second - first).mean(axis=0),
        spread_ratio_A=np.divide(
            second.std(axis=0), spread, out=np.full_like(spread, np.nan), where=spread > _ROUNDING
        ),
    )
