"""Group sequence policy optimisation: one ratio for all tokens of a dialogue (or turn), their geometric mean.

GSPO (arXiv 2507.18071, sections 4.1 and 4.3: the token form, whose gradient is that of the sequence form). The mean of
the log-ratios keeps long dialogues finite where their sum would be e^10 (field case 18).
"""

import torch

from dialrl.update.losses.types import ClipSettings, PolicyLoss, PolicyTokens, log_ratio


def gspo_loss(tokens: PolicyTokens, clip: ClipSettings) -> PolicyLoss:
    """max(-s A, -clip(s, 1-low, 1+high) A) with s = exp(mean log rho of the unit), used as sg(s) pi / sg(pi).

    Example: log-ratios (.0002, .0006) in one dialogue -> s = e^.0004 for both, clipped where A > 0 (high 4e-4 is less
    than e^.0004 - 1).
    """
    ratio = unit_mean(log_ratio(tokens).detach(), tokens.unit_T).exp()
    surrogate = ratio * (tokens.logprobs_T - tokens.logprobs_T.detach()).exp()
    plain = -surrogate * tokens.advantages_T
    bounded = -surrogate.clamp(1 - clip.low, 1 + clip.high) * tokens.advantages_T
    return PolicyLoss(torch.maximum(plain, bounded), ratio, bounded > plain)


def unit_mean(values_T: torch.Tensor, unit_T: torch.Tensor) -> torch.Tensor:
    """Mean of each token's unit, at every token (T,)."""
    _, index = torch.unique(unit_T, return_inverse=True)
    units = int(index.max()) + 1 if index.numel() else 0
    sums = torch.zeros(units, dtype=values_T.dtype, device=values_T.device).index_add_(0, index, values_T)
    counts = torch.bincount(index, minlength=units).to(values_T.dtype)
    return (sums / counts)[index]
