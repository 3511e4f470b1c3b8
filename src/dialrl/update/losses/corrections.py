"""What is multiplied with or added to a policy loss: importance weight, divergence from a reference.

Truncated importance sampling corrects for the sampler (its kernels, precision, lag) not being the trainer's policy.
The divergence estimators are Schulman's k1, k2 and k3 (http://joschu.net/blog/kl-approx.html).
"""

import torch

from dialrl.update.losses.types import LOG_RATIO_LIMIT


def importance_weight(old_logprobs_T: torch.Tensor, sampler_logprobs_T: torch.Tensor, cap: float) -> torch.Tensor:
    """min(pi_old / pi_sampler, cap), without gradient (T,). Example: log-probs -1 and -3, cap 2 -> 2 (not e^2)."""
    difference = (old_logprobs_T - sampler_logprobs_T).detach()
    return difference.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp().clamp(max=cap)


def divergence_k2(logprobs_T: torch.Tensor, reference_logprobs_T: torch.Tensor) -> torch.Tensor:
    """d^2 / 2 with d = log pi_ref - log pi (T,). Its expected gradient is that of KL(pi, pi_ref). d .2 -> .02."""
    difference = reference_logprobs_T - logprobs_T
    return difference.square() / 2


def divergence_k3(logprobs_T: torch.Tensor, reference_logprobs_T: torch.Tensor) -> torch.Tensor:
    """e^d - 1 - d with d = log pi_ref - log pi (T,); never negative. d .2 -> .021403."""
    difference = (reference_logprobs_T - logprobs_T).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    return torch.expm1(difference) - difference


DIVERGENCES = {"k2": divergence_k2, "k3": divergence_k3}
