"""REINFORCE: the policy gradient without a ratio (Williams 1992; with baselines, arXiv 2402.14740)."""

import torch

from dialrl.update.losses.types import ClipSettings, PolicyLoss, PolicyTokens, log_ratio


def reinforce_loss(tokens: PolicyTokens, clip: ClipSettings) -> PolicyLoss:
    """-A log pi; nothing is clipped. Example: A .5, log pi -2 -> 1."""
    ratio = log_ratio(tokens).detach().exp()
    clipped = torch.zeros_like(ratio, dtype=torch.bool)
    return PolicyLoss(-tokens.advantages_T * tokens.logprobs_T, ratio, clipped)
