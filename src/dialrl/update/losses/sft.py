"""Supervised fine-tuning on chosen dialogues: warm start, or rejection sampling."""

import torch

from dialrl.update.losses.types import ClipSettings, PolicyLoss, PolicyTokens


def sft_loss(tokens: PolicyTokens, clip: ClipSettings) -> PolicyLoss:
    """-log pi of every trained token; advantages only chose the dialogues. The ratio is not defined and given as 1."""
    ones = torch.ones_like(tokens.logprobs_T, dtype=tokens.logprobs_T.dtype).detach()
    return PolicyLoss(-tokens.logprobs_T, ones, torch.zeros_like(ones, dtype=torch.bool))
