"""Proximal policy optimisation with two clip widths and dual clipping, token by token.

PPO (arXiv 1707.06347, section 3), the wider upper clip of DAPO (2503.14476, section 3.1), dual clip (1912.09729).
"""

import torch

from dialrl.update.losses.types import ClipSettings, PolicyLoss, PolicyTokens, log_ratio


def ppo_loss(tokens: PolicyTokens, clip: ClipSettings) -> PolicyLoss:
    """max(-rho A, -clip(rho, 1-low, 1+high) A); for A < 0 at most -c A.

    Example (low .2, high .28, c 10): rho 1.5, A 1 -> -1.28 (clipped, no gradient); rho 1.5, A -1 -> 1.5; rho .5, A -1
    -> .8 (clipped); rho 12, A -1 -> 10 (dual clip).
    """
    ratio = log_ratio(tokens).exp()
    advantages = tokens.advantages_T
    plain = -ratio * advantages
    bounded = -ratio.clamp(1 - clip.low, 1 + clip.high) * advantages
    loss = torch.maximum(plain, bounded)
    ceiling = torch.where(advantages < 0, -clip.dual * advantages, torch.inf)
    clipped = (bounded > plain) | (loss > ceiling)
    return PolicyLoss(torch.minimum(loss, ceiling), ratio.detach(), clipped)
