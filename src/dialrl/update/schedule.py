"""Learning rate of each step of a run.

A step is one call of ``update`` (one advantage file), whatever number of optimiser steps it takes, so that the schedule
does not depend on how many dialogues a file happened to have.
"""

import math

from dialrl.update.config import UpdateConfig


def learning_rate(config: UpdateConfig, step: int, total_steps: int | None) -> float:
    """Learning rate of step ``step`` (from 0) of ``total_steps``; beyond the last step it stays at the final share.

    Warm-up rises by equal parts and its first step is not 0. Example, peak 1, cosine, warm-up 2 of 6 steps, final share
    0: .5, 1, then 1, .8536, .5, .1464 for steps 2 to 5, then 0. linear: 1, .75, .5, .25, then 0.
    """
    if step < config.warmup_steps:
        return config.learning_rate * (step + 1) / config.warmup_steps
    if config.schedule == "constant" or total_steps is None:
        return config.learning_rate
    progress = min(1.0, (step - config.warmup_steps) / max(1, total_steps - config.warmup_steps))
    share = (1 + math.cos(math.pi * progress)) / 2 if config.schedule == "cosine" else 1 - progress
    final = config.final_learning_rate_share
    return config.learning_rate * (final + (1 - final) * share)
