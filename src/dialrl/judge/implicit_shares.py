"""From log-ratios of tokens to rewards of turns: the arithmetic of implicit process rewards. Pure.

PRIME (arXiv 2502.01456, section 2): a token's reward is beta (log phi - log pi_ref). ITPO (2603.23550): a turn's is the
sum over its tokens, or, normalised, its share of the dialogue's outcome. Not here: models, files.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def summed_scores(log_ratio_K: Sequence[float], beta: float) -> Floats:
    """Rewards of a dialogue's turns, not normalised: beta times the turn's log-ratio.

    Example, beta .5: log-ratios (2, -1) -> (1, -.5).
    """
    return beta * np.asarray(log_ratio_K, dtype=np.float64)


def shares_of_outcome(
    log_ratio_K: Sequence[float],
    tokens_K: Sequence[int],
    outcome: float,
    *,
    beta: float,
    temperature: float,
    mean_tokens: float,
) -> Floats:
    """The outcome shared out over a dialogue's turns: outcome x softmax(m L / temperature). They sum to the outcome.

    m is the mean score of the turn's tokens (0 for an empty reply), L = ``mean_tokens`` the mean number of tokens of a
    turn in the file: long turns have no more to say than short ones, and the exponent is of the size of a turn's sum.
    Example, beta 1, temperature 1, L 2, outcome 1: log-ratios (log 3, 0) of 2 tokens each -> m L = (log 3, 0), shares
    (.75, .25).
    """
    tokens = np.maximum(np.asarray(tokens_K, dtype=np.float64), 1.0)
    exponent_K = beta * np.asarray(log_ratio_K, dtype=np.float64) / tokens * mean_tokens / temperature
    weight_K = np.exp(exponent_K - exponent_K.max(initial=-np.inf))
    return np.asarray(outcome * weight_K / weight_K.sum(), dtype=np.float64)
