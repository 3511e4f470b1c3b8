"""Draws one token a row from logits: inverse of the cumulative distribution at a row's own uniform number.

Each request has a counter-based generator of its own, so that a reply depends on its seed and logits alone, never on
which rows stand beside it. Log-probs are under the distribution drawn from: after temperature and any truncation
(field case 17). Not here: the model, stop tokens.
"""

from collections.abc import Sequence

import numpy as np
import torch

from dialrl.engine.base import SamplingSettings
from dialrl.errors import UsageError

# Top-p keeps tokens until their sum reaches it; float32 logits tell sums apart no finer than this.
_TOP_P_TOLERANCE = 1e-6


def check_settings(settings: SamplingSettings) -> None:
    """Raise UsageError for settings outside their bounds."""
    bounds = {
        "temperature": (settings.temperature, settings.temperature >= 0, "at least 0 (0: the most probable token)"),
        "top_p": (settings.top_p, 0 < settings.top_p <= 1, "above 0 and at most 1 (1: off)"),
        "top_k": (settings.top_k, settings.top_k >= 0, "at least 0 (0: off)"),
        "min_p": (settings.min_p, 0 <= settings.min_p < 1, "at least 0 and below 1 (0: off)"),
        "max_reply_tokens": (settings.max_reply_tokens, settings.max_reply_tokens >= 1, "at least 1"),
    }
    for name, (value, allowed, expected) in bounds.items():
        if not allowed:
            raise UsageError(f"Sampling: {name} is {value}; expected {expected}.")


def uniforms(seeds: Sequence[int], count: int) -> np.ndarray:
    """(len(seeds), count) float64 in [0, 1): row i holds the first numbers of Philox keyed by ``seeds[i]``."""
    numbers = np.empty((len(seeds), count))
    for row, seed in zip(numbers, seeds, strict=True):
        np.random.Generator(np.random.Philox(key=seed)).random(out=row)
    return numbers


def draw(
    logits_RV: torch.Tensor, uniforms_R: torch.Tensor, settings: SamplingSettings
) -> tuple[torch.Tensor, torch.Tensor]:
    """``(tokens_R, logprobs_R)``: token v is drawn where the cumulative probability first exceeds the uniform number.

    Probabilities (.5, .3, .2): u = .49 draws 0, u = .5 draws 1, u = .8 draws 2. At temperature 0 the most probable
    token (the lowest id among equals) is drawn for certain, with log-prob 0. Sums are in float64.
    """
    if settings.temperature == 0:
        tokens_R = logits_RV.argmax(-1)
        return tokens_R, torch.zeros_like(tokens_R, dtype=torch.float64)
    scaled_RV = logits_RV.double() / settings.temperature
    weights_RV = torch.exp(scaled_RV - scaled_RV.amax(-1, keepdim=True))
    if not settings.keeps_whole_distribution:
        weights_RV = _truncated(weights_RV, settings)
    cumulative_RV = weights_RV.cumsum(-1)
    total_R1 = cumulative_RV[:, -1:]
    # Just below the total, so that rounding never selects a token past the last one of positive weight.
    targets_R1 = torch.minimum(
        uniforms_R.unsqueeze(-1) * total_R1, torch.nextafter(total_R1, torch.zeros_like(total_R1))
    )
    tokens_R1 = torch.searchsorted(cumulative_RV, targets_R1, right=True).clamp_(max=logits_RV.shape[-1] - 1)
    logprobs_R1 = (weights_RV.gather(-1, tokens_R1) / total_R1).log()
    return tokens_R1.squeeze(-1), logprobs_R1.squeeze(-1)


def _truncated(weights_RV: torch.Tensor, settings: SamplingSettings) -> torch.Tensor:
    """Weights with the tokens outside top-k, then top-p of what is left, then min-p set to 0; the best always stays."""
    sorted_RV, order_RV = weights_RV.sort(dim=-1, descending=True, stable=True)
    if settings.top_k > 0:
        sorted_RV[:, settings.top_k :] = 0
    probability_RV = sorted_RV / sorted_RV.sum(-1, keepdim=True)
    before_RV = probability_RV.cumsum(-1) - probability_RV
    keep_RV = before_RV < (settings.top_p - _TOP_P_TOLERANCE if settings.top_p < 1 else 2)
    keep_RV &= probability_RV >= settings.min_p * probability_RV[:, :1]
    keep_RV[:, 0] = True
    return torch.zeros_like(weights_RV).scatter_(-1, order_RV, torch.where(keep_RV, sorted_RV, 0))
