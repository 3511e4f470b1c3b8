"""Does the sampler draw from the trainer's weights? Log-probs of next tokens, asked of both and compared.

A *reference* holds what a transformers model gives after a few fixed prompts: the trainer's own model while it is at
hand, else the policy's directory loaded once. Some prompts are longer than a block of vLLM's prefix cache, so values
left over from old weights are found too (field case 19). Not here: what is done about a difference (``delivery``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np

from dialrl.engine.base import Engine, GenerationRequest, SamplingSettings
from dialrl.errors import RunError, UsageError
from dialrl.model.loading import LoadingSettings, Precision, load_model, load_tokenizer, model_directory

PROMPT_TOKENS = (24, 150, 300)  # the longer ones fill blocks of 16 (GPU) and 128 (CPU) tokens of a prefix cache
_SAMPLED_TOKENS = 16
_TEXT = (
    "I could not sleep again, and I keep thinking about what my brother said on the phone. He told me that I always"
    " make it about myself. Maybe he is right. Or maybe he only said it because he was tired. What would you do?"
    " I would ask him what he meant, once you both have slept. It sounds as if it hurt because you care for him."
)
Prompts = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Reference:
    """``logprobs_PV``: log-probs over the vocabulary after each of ``prompts``, float32."""

    prompts: Prompts
    logprobs_PV: np.ndarray

    def difference(self, sampled: Sequence[Mapping[int, float]]) -> float:
        """Mean over prompts and reported tokens of |sampler's log-prob - ours|; infinite where any is no number.

        Ours [-1, -2], the sampler says {0: -1.1, 1: -2.3}: 0.2.
        """
        gaps = [
            abs(value - float(self.logprobs_PV[prompt, token]))
            for prompt, tokens in enumerate(sampled)
            for token, value in tokens.items()
        ]
        mean = float(np.mean(gaps)) if gaps else float("inf")
        return mean if np.isfinite(mean) else float("inf")

    def moved_from(self, other: "Reference") -> float:
        """Mean |difference| to another policy's reference at the same prompts, over tokens either makes likely."""
        likely_PV = np.maximum(self.logprobs_PV, other.logprobs_PV) > np.log(1e-3)
        gaps_PV = np.abs(self.logprobs_PV - other.logprobs_PV)
        return float(gaps_PV[likely_PV].mean()) if likely_PV.any() else 0.0


def probe_prompts(policy: str | Path, longest: int | None = None) -> Prompts:
    """Token ids of the probe's prompts, by the policy's own tokenizer, cut to ``longest`` tokens."""
    ids = load_tokenizer(policy).encode(_TEXT, add_special_tokens=False) or [1]
    lengths = sorted({length if longest is None else max(1, min(length, longest)) for length in PROMPT_TOKENS})
    return tuple(tuple(islice(cycle(ids), length)) for length in lengths)


def reference_of(model: Any, prompts: Prompts) -> Reference:
    """What ``model`` (a transformers causal language model) gives; it is left in the mode it was in."""
    import torch

    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            rows = [_next_logprobs(torch, model, prompt) for prompt in prompts]
    finally:
        model.train(was_training)
    return Reference(prompts, np.stack(rows))


def _next_logprobs(torch: Any, model: Any, prompt: Sequence[int]) -> np.ndarray:
    ids = torch.tensor([list(prompt)], device=next(model.parameters()).device)
    hidden = model.get_decoder()(input_ids=ids, use_cache=False).last_hidden_state[0, -1]
    logits_V = model.get_output_embeddings()(hidden).float()
    logprobs_V: np.ndarray = torch.log_softmax(logits_V, -1).cpu().numpy()
    return logprobs_V


def stored_reference(
    policy: str | Path, prompts: Prompts, *, device: str = "cpu", precision: Precision = "float32"
) -> Reference:
    """The reference of a policy directory, loaded for it and dropped again."""
    model = load_model(policy, LoadingSettings(device=device, precision=precision))
    return reference_of(model, prompts)


@dataclass(frozen=True)
class SamplerProbe:
    """Log-probs of ``tokens`` sampled tokens: mean and largest |sampler - trainer|."""

    mean: float
    largest: float
    tokens: int


async def probe_sampler(engine: Engine, policy: str | Path, *, temperature: float = 1.0) -> SamplerProbe:
    """Draw a few replies from ``engine`` and compare their log-probs with those of ``policy`` in transformers.

    An engine that asks endpoints must be connected to open ``ModelCalls``. Raises UsageError for an engine that gives
    no ids and log-probs, RunError when it gives no reply.
    """
    if not (engine.capabilities.token_ids and engine.capabilities.logprobs):
        raise UsageError("This engine gives no token ids and log-probs, so it cannot be compared with the trainer.")
    prompts = probe_prompts(policy, engine.capabilities.context_limit_tokens and 64)
    sampling = SamplingSettings(temperature=temperature, max_reply_tokens=_SAMPLED_TOKENS)
    requests = [
        GenerationRequest(prompt, seed=number, dialogue=f"probe-{number}") for number, prompt in enumerate(prompts)
    ]
    if engine.capabilities.schedule == "block":
        replies = engine.generate_block(requests, sampling)
    else:
        replies = [await engine.generate(request, sampling) for request in requests]
    failed = next((reply.error for reply in replies if reply.finish_reason == "error"), None)
    if failed is not None:
        raise RunError(f"The engine gave no reply to a probe: {failed}")
    trained = _reply_logprobs(
        policy, [(p, reply.reply_ids) for p, reply in zip(prompts, replies, strict=True)], temperature
    )
    gaps_T = np.abs(np.concatenate([reply.logprobs or [] for reply in replies]) - trained)
    return SamplerProbe(float(gaps_T.mean()), float(gaps_T.max()), len(gaps_T))


def _reply_logprobs(
    policy: str | Path, pairs: Sequence[tuple[Sequence[int], Sequence[int]]], temperature: float
) -> np.ndarray:
    import torch

    from dialrl.model.logprobs import HeadSettings, token_logprobs
    from dialrl.model.packing import TokenSequence, pad_sequences

    sequences = [
        TokenSequence(np.array([*prompt, *reply]), np.arange(len(prompt), len(prompt) + len(reply)))
        for prompt, reply in pairs
    ]
    model = load_model(model_directory(policy), LoadingSettings())
    with torch.inference_mode():
        found = token_logprobs(model, pad_sequences(sequences), HeadSettings(temperature=temperature))
    logprobs_T: np.ndarray = found.logprobs_T.numpy()
    return logprobs_T
