"""Which optimiser steps a file gives: its dialogues dealt to mini-batches, every trained token weighted.

A mini-batch whose advantages are all 0 gives no step: momentum and weight decay would move the weights without any
signal. If no mini-batch gives one, the file has no learning signal (field case 9).
"""

from dataclasses import dataclass

import numpy as np

from dialrl.update.aggregation import token_weights
from dialrl.update.batching import mini_batches
from dialrl.update.config import UpdateConfig
from dialrl.update.data import TrainingData
from dialrl.update.turns import Floats, Ints

NO_SIGNAL = "no learning signal"


@dataclass(frozen=True)
class PlannedStep:
    """One optimiser step: its dialogues, the numbers of its trained tokens, and the weight of every token of the file.

    ``weights_T`` is 0 outside the step.
    """

    epoch: int
    dialogues: list[int]
    tokens: Ints
    weights_T: Floats


def plan_steps(data: TrainingData, config: UpdateConfig, *, step: int) -> list[PlannedStep]:
    """The optimiser steps of update ``step`` on ``data``, in order; empty without a learning signal."""
    planned = []
    for epoch in range(config.epochs):
        size = config.mini_batch_dialogues
        for dialogues in mini_batches(len(data.dialogues), size, seed=config.seed, step=step, epoch=epoch):
            tokens = np.flatnonzero(np.isin(data.dialogue_T, dialogues))
            if np.any(data.advantage_T[tokens]):
                planned.append(PlannedStep(epoch, dialogues, tokens, _weights(data, tokens, config)))
    return planned


def _weights(data: TrainingData, tokens: Ints, config: UpdateConfig) -> Floats:
    weights_T = np.zeros(data.trained_tokens)
    aggregation = "dialogue" if config.loss == "outcome" else config.aggregation
    weights_T[tokens] = token_weights(
        aggregation, data.turn_T[tokens], data.dialogue_T[tokens], config.dialogue_token_limit
    )
    return weights_T


def no_signal_sentence(data: TrainingData) -> str:
    """Says why nothing was trained, with the counts that show it."""
    turns = data.counts.get("turns", len(data.turn_number))
    if not data.sequences:
        reasons = {name.removeprefix("turns_"): n for name, n in data.counts.items() if name.startswith("turns_") and n}
        why = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in reasons.items()) or "no turns"
        return f"{NO_SIGNAL}: none of {turns} turns is trained ({why}). The weights are unchanged."
    return (
        f"{NO_SIGNAL}: every one of the {len(data.turn_number)} trained turns has advantage 0 (all pools are"
        " degenerate). The weights are unchanged. Draw more varied rollouts, or see dialrl inspect on the file."
    )
