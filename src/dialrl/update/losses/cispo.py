"""Clipped importance-sampling policy optimisation: the weight is clipped, the gradient of every token stays.

CISPO (MiniMax-M1, arXiv 2506.13585, section 3.1).
"""

from dialrl.update.losses.types import ClipSettings, PolicyLoss, PolicyTokens, log_ratio


def cispo_loss(tokens: PolicyTokens, clip: ClipSettings) -> PolicyLoss:
    """-sg(min(rho, 1+high)) A log pi.

    Example (high .28): rho 2, A 1, log pi -1 -> 1.28; rho .5 -> .5. Its gradient in log pi is -1.28 and -.5.
    """
    ratio = log_ratio(tokens).detach().exp()
    weight = ratio.clamp(max=1 + clip.high)
    return PolicyLoss(-weight * tokens.advantages_T * tokens.logprobs_T, ratio, ratio > 1 + clip.high)
