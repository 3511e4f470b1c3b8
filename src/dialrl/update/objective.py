"""The loss of one forward pass, put together: policy loss x importance weight + divergence - entropy, weighted and
summed over its trained tokens; or that of a reward model.

Summed over the forward passes of an optimiser step it is the step's loss, and its gradients add up exactly. Pure: torch
in and out. Not here: the model, the order of work, the optimiser.
"""

from dataclasses import dataclass

import torch

from dialrl.update.config import UpdateConfig
from dialrl.update.losses import POLICY_LOSSES, ClipSettings, PolicyTokens
from dialrl.update.losses.corrections import DIVERGENCES, importance_weight
from dialrl.update.losses.outcome import OutcomeTokens, outcome_loss


@dataclass(frozen=True)
class ObjectiveTokens:
    """Trained tokens (T,) of one forward pass. ``weights_T`` come from ``aggregation.token_weights``.

    ``sampler_logprobs_T``, ``reference_logprobs_T`` and ``label_T`` are None where the loss does not use them.
    """

    policy: PolicyTokens
    weights_T: torch.Tensor
    entropy_T: torch.Tensor
    sampler_logprobs_T: torch.Tensor | None = None
    reference_logprobs_T: torch.Tensor | None = None
    label_T: torch.Tensor | None = None


@dataclass(frozen=True)
class Objective:
    """``loss`` (with gradient), and the tensors the metrics are made of, without gradient.

    ``score_T``: with loss outcome, the score of each token's dialogue.
    """

    loss: torch.Tensor
    ratio_T: torch.Tensor
    clipped_T: torch.Tensor
    reference_divergence: torch.Tensor | None
    score_T: torch.Tensor | None = None


def objective(tokens: ObjectiveTokens, config: UpdateConfig) -> Objective:
    """The configured loss over ``tokens``."""
    if tokens.label_T is not None and tokens.reference_logprobs_T is not None:
        return _reward_model(tokens, tokens.label_T, tokens.reference_logprobs_T, config)
    low, high = config.clip
    policy = POLICY_LOSSES[config.loss](tokens.policy, ClipSettings(low, high, config.dual_clip))
    loss = (policy.loss_T * _sampler_weight(tokens, config) * tokens.weights_T).sum()
    divergence = None
    if tokens.reference_logprobs_T is not None:
        divergence_T = DIVERGENCES[config.kl_loss](tokens.policy.logprobs_T, tokens.reference_logprobs_T)
        loss = loss + config.kl_coefficient * (divergence_T * tokens.weights_T).sum()
        divergence = divergence_T.detach().sum()
    if config.entropy_bonus > 0:
        loss = loss - config.entropy_bonus * (tokens.entropy_T * tokens.weights_T).sum()
    return Objective(loss, policy.ratio_T, policy.clipped_T, divergence)


def _reward_model(
    tokens: ObjectiveTokens, label_T: torch.Tensor, reference_T: torch.Tensor, config: UpdateConfig
) -> Objective:
    policy = tokens.policy
    found = outcome_loss(OutcomeTokens(policy.logprobs_T, reference_T, label_T, policy.unit_T), config.outcome_beta)
    ones = torch.ones_like(found.score_T)
    return Objective((found.loss_T * tokens.weights_T).sum(), ones, ones.bool() & False, None, found.score_T)


def _sampler_weight(tokens: ObjectiveTokens, config: UpdateConfig) -> torch.Tensor | float:
    """Weight pi_old / pi_sampler: 1 when pi_old *is* the sampler's, or for sft."""
    if not config.is_policy_gradient or config.old_logprobs == "sampler" or tokens.sampler_logprobs_T is None:
        return 1.0
    return importance_weight(tokens.policy.old_logprobs_T, tokens.sampler_logprobs_T, config.importance_cap)
