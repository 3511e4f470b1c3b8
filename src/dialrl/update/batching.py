"""How dialogues are dealt to optimiser steps, and their sequences to forward passes.

Optimiser steps are counted in dialogues and shared out evenly: 10 dialogues in mini-batches of 4 give 4, 3 and 3, every
dialogue once an epoch, nothing dropped or repeated (field case 16). Forward passes change nothing but rounding.
"""

import random
from collections.abc import Sequence
from itertools import chain

import numpy as np

from dialrl.model.packing import plan_batches, plan_bins
from dialrl.seeds import seed_for
from dialrl.update.config import UpdateConfig
from dialrl.update.data import TrainingData


def mini_batches(dialogues: int, size: int | None, *, seed: int, step: int, epoch: int) -> list[list[int]]:
    """Dialogue numbers of each optimiser step of an epoch, in an order that ``seed``, ``step``, ``epoch`` determine."""
    order = list(range(dialogues))
    if size is None or size >= dialogues:
        return [order] if dialogues else []
    random.Random(seed_for(seed, step, "order of dialogues", 0, epoch, "update")).shuffle(order)
    parts = np.array_split(np.array(order), -(-dialogues // size))
    return [sorted(int(dialogue) for dialogue in part) for part in parts]


def micro_batches(
    data: TrainingData, dialogues: Sequence[int], config: UpdateConfig, *, packed: bool = False
) -> list[list[int]]:
    """Sequence numbers of each forward pass over ``dialogues``; ``packed``: the budget counts no padding.

    What is one for a whole dialogue (the ratio of gspo, the score of outcome) keeps its sequences together.
    """
    wanted = np.zeros(len(data.dialogues), dtype=np.bool_)
    wanted[list(dialogues)] = True
    sequences = [int(index) for index in np.flatnonzero(wanted[data.sequence_dialogue])]
    if config.micro_batch_dialogues is not None:
        units, size = _by_dialogue(data, sequences), config.micro_batch_dialogues
        return [list(chain.from_iterable(units[start : start + size])) for start in range(0, len(units), size)]
    together = config.loss == "outcome" or (config.loss == "gspo" and config.gspo_level == "dialogue")
    units = _by_dialogue(data, sequences) if together else [[index] for index in sequences]
    lengths = [[data.sequences[index].input_length for index in unit] for unit in units]
    if packed:
        plan = plan_bins([sum(unit) for unit in lengths], config.micro_batch_tokens)
    else:
        plan = plan_batches([len(unit) * max(unit) for unit in lengths], config.micro_batch_tokens)
    return [[index for unit in batch for index in units[unit]] for batch in plan]


def _by_dialogue(data: TrainingData, sequences: Sequence[int]) -> list[list[int]]:
    units: dict[int, list[int]] = {}
    for index in sequences:
        units.setdefault(int(data.sequence_dialogue[index]), []).append(index)
    return list(units.values())


def deal(costs: Sequence[int], processes: int) -> list[list[int | None]]:
    """Indices of forward passes for each process: as many for each (None: none is left), their costs balanced.

    Sharded weights are gathered by all processes together, so all make equally many passes. The costliest goes to the
    process with least to do that has room.

    >>> deal([5, 4, 3, 3, 1], processes=2)
    [[0, 3, None], [1, 2, 4]]
    """
    rounds = -(-len(costs) // processes)
    dealt: list[list[int | None]] = [[] for _ in range(processes)]
    load = [0] * processes
    for index in sorted(range(len(costs)), key=lambda index: (-costs[index], index)):
        free = [number for number in range(processes) if len(dealt[number]) < rounds]
        chosen = min(free, key=lambda number: (load[number], number))
        dealt[chosen].append(index)
        load[chosen] += costs[index]
    return [one + [None] * (rounds - len(one)) for one in dealt]
