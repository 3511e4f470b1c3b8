"""What every policy loss takes and gives: arrays over the trained tokens (T,) of one forward pass."""

from dataclasses import dataclass

import torch

LOG_RATIO_LIMIT = 20.0


@dataclass(frozen=True)
class PolicyTokens:
    """``logprobs_T`` under the policy being trained (with gradient), ``old_logprobs_T`` under the one before the step.

    ``advantages_T``: that of the token's own turn. ``unit_T``: number of the dialogue or turn whose tokens share one
    ratio (gspo); all tokens of a unit are here.
    """

    logprobs_T: torch.Tensor
    old_logprobs_T: torch.Tensor
    advantages_T: torch.Tensor
    unit_T: torch.Tensor


@dataclass(frozen=True)
class ClipSettings:
    """Ratios are clipped to [1 - low, 1 + high]; ``dual``: bound c of the loss at negative advantages (ppo)."""

    low: float = 0.2
    high: float = 0.28
    dual: float = 10.0


@dataclass(frozen=True)
class PolicyLoss:
    """``loss_T`` (with gradient), and for the metrics ``ratio_T`` and ``clipped_T`` (bool: the clip decided)."""

    loss_T: torch.Tensor
    ratio_T: torch.Tensor
    clipped_T: torch.Tensor


def log_ratio(tokens: PolicyTokens) -> torch.Tensor:
    """log pi - log pi_old (T,), held within +-20 so that ``exp`` stays finite (field case 18)."""
    return (tokens.logprobs_T - tokens.old_logprobs_T).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
