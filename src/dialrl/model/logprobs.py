"""Log-probs and entropy of trained tokens: hidden states first, then the head at trained places only, in chunks.

The whole table of logits (every place x vocabulary) never exists: hidden states are picked at the places that predict
a trained token, and head, log-softmax and entropy run over chunks of them; with more than one chunk each is recomputed
in the backward pass (field case 20). Large vocabularies go through ``fused_head``. Not here: which tokens are trained.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from dialrl.errors import UsageError
from dialrl.model.fused_head import FusedHead
from dialrl.model.packing import SequenceBatch

LOGITS_BYTES = 2**28  # of the four tables that live at once
FUSED_LOGITS_BYTES = 2**29  # of the only one
LARGE_VOCABULARY = 1024  # from here on the head's elementwise passes are worth fusing
HEAD_TOLERANCE = 1e-3


@dataclass(frozen=True)
class TokenLogprobs:
    """``logprobs_T`` (T,) of the trained tokens and ``entropy_T`` (T,) of the distributions they were drawn from."""

    logprobs_T: torch.Tensor
    entropy_T: torch.Tensor


@dataclass(frozen=True)
class HeadSettings:
    """``temperature`` divides the logits, as the sampler did. ``chunk_tokens``: tokens whose logits exist at once.

    ``entropy_gradient``: the entropy is part of the loss; otherwise it is only measured.
    """

    temperature: float = 1.0
    chunk_tokens: int | None = None
    entropy_gradient: bool = False


def token_logprobs(model: Any, batch: SequenceBatch, settings: HeadSettings) -> TokenLogprobs:
    """Log-probs and entropies of a batch's trained tokens under ``model``, differentiable."""
    hidden_TH = hidden_at_trained(model, batch)
    return head_logprobs(model.get_output_embeddings(), hidden_TH, batch.targets_T, settings)


def hidden_at_trained(model: Any, batch: SequenceBatch) -> torch.Tensor:
    """Hidden states (T, H) that predict the batch's trained tokens."""
    segments: dict[str, Any] = {}
    if batch.bounds is not None:
        segments = {"cu_seq_lens_q": batch.bounds, "cu_seq_lens_k": batch.bounds}
        segments |= {"max_length_q": batch.longest, "max_length_k": batch.longest}
    output = model.get_decoder()(
        input_ids=batch.input_ids,
        position_ids=batch.position_ids,
        use_cache=False,
        **segments,
    )
    hidden = output.last_hidden_state
    return hidden.reshape(-1, hidden.shape[-1]).index_select(0, batch.predicting_places)


def head_logprobs(head: Any, hidden_TH: torch.Tensor, targets_T: torch.Tensor, settings: HeadSettings) -> TokenLogprobs:
    """Log-prob of each target and entropy of its distribution, from hidden states.

    ``head`` maps (n, H) to (n, V). Results are at least float32. Entropy carries a gradient only when asked for.
    """
    vocabulary, count = head.weight.shape[0], hidden_TH.shape[0]
    if _is_fused(head, settings):
        chunk = settings.chunk_tokens or max(1, FUSED_LOGITS_BYTES // (4 * vocabulary))
        return TokenLogprobs(*FusedHead.apply(hidden_TH, head.weight, targets_T, settings.temperature, chunk))
    chunk = settings.chunk_tokens or default_chunk_tokens(vocabulary)
    if count <= chunk:
        return TokenLogprobs(*_head_chunk(head, hidden_TH, targets_T, settings))
    parts = [
        checkpoint(_head_chunk, head, hidden, targets, settings, use_reentrant=False, preserve_rng_state=False)
        for hidden, targets in zip(hidden_TH.split(chunk), targets_T.split(chunk), strict=True)
    ]
    return TokenLogprobs(torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts]))


def _is_fused(head: Any, settings: HeadSettings) -> bool:
    """Whether the head is a plain linear map whose elementwise work is worth fusing."""
    plain = type(head) is torch.nn.Linear and head.bias is None
    return plain and not settings.entropy_gradient and head.weight.shape[0] >= LARGE_VOCABULARY


def default_chunk_tokens(vocabulary: int) -> int:
    """Tokens whose float32 logits fit in 256 MB."""
    return max(1, LOGITS_BYTES // (4 * vocabulary))


def _head_chunk(
    head: Any, hidden: torch.Tensor, targets: torch.Tensor, settings: HeadSettings
) -> tuple[torch.Tensor, torch.Tensor]:
    logits_TV = head(hidden)
    if logits_TV.dtype in (torch.float16, torch.bfloat16):
        logits_TV = logits_TV.float()
    if settings.temperature != 1.0:
        logits_TV = logits_TV / settings.temperature
    log_softmax_TV = torch.log_softmax(logits_TV, dim=-1)
    logprobs = log_softmax_TV.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    if settings.entropy_gradient:
        return logprobs, entropy_of(log_softmax_TV)
    return logprobs, _measured_entropy(log_softmax_TV.detach())


def entropy_of(log_softmax_TV: torch.Tensor) -> torch.Tensor:
    """-sum p log p over the vocabulary (T,), a token of probability 0 adding 0."""
    return torch.special.entr(log_softmax_TV.exp()).sum(-1)


def _measured_entropy(log_softmax_TV: torch.Tensor) -> torch.Tensor:
    """As ``entropy_of`` up to rounding, without a gradient and without taking the logarithm again."""
    finite_TV = log_softmax_TV.clamp(min=torch.finfo(log_softmax_TV.dtype).min)  # -inf times probability 0 is no number
    return log_softmax_TV.exp().mul_(finite_TV).sum(-1).neg()


def check_head(model: Any) -> None:
    """Raise UsageError when head(decoder(x)) is not what the model itself computes.

    Some models scale or cap their logits after the head; training them without that would be another distribution.
    """
    head, device = model.get_output_embeddings(), next(model.parameters()).device
    if head is None or not hasattr(head, "weight"):
        raise UsageError(f"{type(model).__name__} has no output head; update trains causal language models.")
    probe = torch.arange(4, device=device).unsqueeze(0) % head.weight.shape[0]
    with torch.no_grad():
        ours = head(model.get_decoder()(input_ids=probe, use_cache=False).last_hidden_state).float()
        own = model(input_ids=probe, use_cache=False).logits.float()
    difference = float((ours - own).abs().max())
    if not difference <= HEAD_TOLERANCE * max(1.0, float(own.abs().max())):
        raise UsageError(
            f"{type(model).__name__} changes its logits after the head (largest difference {difference:.3g}); models"
            " that scale or cap their logits cannot be trained yet. Use one whose head is a plain linear layer."
        )
