"""From token losses to one loss: a weight for every trained token of one optimiser step.

The loss of a step is the plain sum of weight x token loss, so it does not depend on how the step is cut into forward
passes or spread over processes (field case 15). Sets are those of the whole step (docs/credit.md 3).
"""

import numpy as np

from dialrl.update.config import AggregationName
from dialrl.update.turns import Floats, Ints


def token_weights(
    aggregation: AggregationName, turn_T: Ints, dialogue_T: Ints, dialogue_token_limit: int | None = None
) -> Floats:
    """Weight of each trained token (T,), from the turn and dialogue each belongs to.

    ``token``: 1/T. ``turn``: mean over turns of token means. ``dialogue``: mean over dialogues of token means (Dr. GRPO
    calls the bias of that by name). ``dialogue-sum-constant``: 1 / (dialogues x ``dialogue_token_limit``).

    Example, turns of 2 and 1 tokens in one dialogue and 1 token in another: token (1/4, 1/4, 1/4, 1/4); turn (1/6, 1/6,
    1/3, 1/3); dialogue (1/6, 1/6, 1/6, 1/2); constant 10: 1/20 each.
    """
    if aggregation == "turn":
        return _mean_of_means(turn_T)
    if aggregation == "dialogue":
        return _mean_of_means(dialogue_T)
    if aggregation == "dialogue-sum-constant":
        divisor = len(np.unique(dialogue_T)) * (dialogue_token_limit or 1)
        return np.full(len(dialogue_T), 1.0 / max(1, divisor))
    return np.full(len(turn_T), 1.0 / max(1, len(turn_T)))


def _mean_of_means(set_T: Ints) -> Floats:
    _, index, counts = np.unique(set_T, return_inverse=True, return_counts=True)
    weights: Floats = 1.0 / (len(counts) * counts[index])
    return weights
