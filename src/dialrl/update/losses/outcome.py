"""Cross-entropy of a dialogue's outcome: what trains an implicit process reward model, from outcomes alone.

PRIME (arXiv 2502.01456, section 2.2), over the tokens of a whole dialogue as in ITPO (2603.23550). This trains a reward
model, not a policy. How its parts become rewards of turns: ``dialrl.judge.implicit_shares``.
"""

from dataclasses import dataclass

import torch
from torch.nn import functional


@dataclass(frozen=True)
class OutcomeTokens:
    """Tokens (T,) of whole dialogues: log-probs under phi (with gradient) and under the frozen reference.

    ``label_T``: the outcome of the token's dialogue, in [0, 1]. ``dialogue_T``: its number; *all* trained tokens of a
    dialogue must be here, since the loss is one of their sum.
    """

    logprobs_T: torch.Tensor
    reference_logprobs_T: torch.Tensor
    label_T: torch.Tensor
    dialogue_T: torch.Tensor


@dataclass(frozen=True)
class OutcomeLoss:
    """``loss_T`` (with gradient) and ``score_T`` (without): those of the token's dialogue, at each of its tokens."""

    loss_T: torch.Tensor
    score_T: torch.Tensor


def outcome_loss(tokens: OutcomeTokens, beta: float) -> OutcomeLoss:
    """BCE(sigmoid(s), y) with the score s = beta x sum over the dialogue of log phi - log pi_ref.

    With weights 1 / (dialogues x tokens of the dialogue) (aggregation ``dialogue``) the sum over tokens is the mean
    over dialogues, and the gradient at each log phi is beta (sigmoid(s) - y) / dialogues.
    Example, beta .5: log-ratios (2, 1, -1) -> s 1; y 1 -> .3133, y 0 -> 1.3133, y .5 -> .8133, at all three tokens.
    """
    _, index = torch.unique(tokens.dialogue_T, return_inverse=True)
    dialogues = int(index.max()) + 1 if index.numel() else 0
    score_D = beta * _sums(tokens.logprobs_T - tokens.reference_logprobs_T, index, dialogues)
    label_D = torch.zeros(dialogues, dtype=tokens.label_T.dtype, device=tokens.label_T.device)
    label_D[index] = tokens.label_T
    loss_D = functional.binary_cross_entropy_with_logits(score_D, label_D, reduction="none")
    return OutcomeLoss(loss_D[index], score_D.detach()[index])


def _sums(value_T: torch.Tensor, index: torch.Tensor, dialogues: int) -> torch.Tensor:
    zeros = torch.zeros(dialogues, dtype=value_T.dtype, device=value_T.device)
    return zeros.index_add(0, index, value_T)
