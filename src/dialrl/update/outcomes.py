"""How well a reward model knows outcomes: figures over whole dialogues, of one optimiser step or of a file, in numpy.

Scores are from before the step; of an epoch's later mini-batches after its earlier ones, which held other dialogues. So
in the first epoch they are of dialogues it was not trained on. Not here: the loss (``losses/outcome``).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dialrl.update.data import TrainingData
from dialrl.update.turns import Floats


def outcome_figures(score_D: Floats, label_D: Floats, group_D: Sequence[str]) -> dict[str, Any]:
    """``accuracy``, ``pairwise_accuracy`` with its ``pairs``, ``score_mean``, ``score_std``, ``label_mean``.

    Accuracy: the score's sign says on which side of .5 the label is (a score of 0 counts half, a label of .5 not).
    Pairwise: of two dialogues of one group with different labels, the better one has the higher score (equal scores
    count half). None where nothing can be counted. Example, one group, scores (1, -1, 2), labels (1, .2, .9): signs all
    right, 1.0; pairs (1, 2), (1, 3), (2, 3): right, wrong, right, 2/3.
    """
    sided = label_D != 0.5
    agreement = np.sign(score_D[sided]) * np.sign(label_D[sided] - 0.5)
    ordered, pairs = _ordered_pairs(score_D, label_D, group_D)
    return {
        "accuracy": float((agreement + 1).mean() / 2) if sided.any() else None,
        "pairwise_accuracy": ordered / pairs if pairs else None,
        "pairs": pairs,
        "score_mean": float(score_D.mean()),
        "score_std": float(score_D.std()),
        "label_mean": float(label_D.mean()),
    }


def first_figures(data: TrainingData, scores: Mapping[int, float]) -> dict[str, Any]:
    """Figures over all dialogues of ``data`` from their first ``scores``; empty for a policy, or without scores."""
    if data.dialogue_label is None or not scores:
        return {}
    dialogues = sorted(scores)
    values = np.array([scores[dialogue] for dialogue in dialogues])
    return outcome_figures(values, data.dialogue_label[dialogues], [data.group_D[dialogue] for dialogue in dialogues])


def _ordered_pairs(score_D: Floats, label_D: Floats, group_D: Sequence[str]) -> tuple[float, int]:
    """How many pairs within a group have different labels, and how many of these the scores put in order."""
    ordered, pairs = 0.0, 0
    groups = np.asarray(group_D)
    for group in np.unique(groups):
        score, label = score_D[groups == group], label_D[groups == group]
        first, second = np.triu_indices(len(score), 1)
        way = np.sign(label[first] - label[second])
        agreement = np.sign(score[first] - score[second]) * way
        ordered += float((agreement[way != 0] + 1).sum() / 2)
        pairs += int((way != 0).sum())
    return ordered, pairs
