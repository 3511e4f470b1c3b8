"""The checks that load weights: sampler against trainer, and delivering weights to the engine that draws.

Opens the policy on the engine that the pipeline names (or hf), once, for both. Not here: the comparison (``logprobs``).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dialrl.doctor.check import Check, Status
from dialrl.doctor.hardware import free_memory, size
from dialrl.doctor.logprobs import Agreement, agreement, sample, trainer_model
from dialrl.doctor.policy import FoundPolicy
from dialrl.doctor.subject import Subject
from dialrl.endpoint.calls import ModelCalls
from dialrl.errors import DialrlError
from dialrl.rollout.policy import open_policy
from dialrl.rollout.stage import Policy
from dialrl.update.config import UpdateConfig

AREA = "Sampling"
ON_POLICY = 1e-3
_NARROW_ON_POLICY = 2e-2  # rounding alone moves log-probs of bfloat16


def examine_sampling(subject: Subject, found: FoundPolicy) -> list[Check]:
    """Open the engine, draw, compare, deliver; what cannot be done says why."""
    if found.directory is None or not subject.weights:
        why = "no policy on this machine" if found.directory is None else "asked for no weights (--no-weights)"
        return [Check(AREA, name, "not applicable", why) for name in ("log-probs", "delivery")]
    if not found.fits:
        return [_too_large(name) for name in ("log-probs", "delivery")]
    if subject.engine == "vllm":
        from dialrl.doctor.vllm import examine_vllm

        return examine_vllm(subject, str(found.directory), _engine_options(subject))
    try:
        policy = open_policy(
            subject.examined_policy or "",
            engine=subject.engine,
            device=subject.device,
            engine_options=_engine_options(subject),
            endpoints=subject.pipeline.rollout.endpoints if subject.pipeline else None,
            template_options=subject.template_options,
        )
    except DialrlError as error:
        return [Check(AREA, "engine", "failed", f"'{subject.engine}' does not open: {error}")]
    try:
        return [_compared(subject, policy, found.directory), _delivered(subject, policy, found.directory)]
    finally:
        policy.engine.close()


def _engine_options(subject: Subject) -> Mapping[str, Any]:
    """The pipeline's, if they are for the engine that is examined."""
    pipeline = subject.pipeline
    return pipeline.rollout.engine_options if pipeline and pipeline.rollout.engine == subject.engine else {}


def _too_large(name: str) -> Check:
    free = free_memory() or 0
    advice = "Run the doctor where there is room for sampler and trainer, or with a smaller policy."
    return Check(AREA, name, "warning", f"not tried: the weights need more than the {size(free)} that are free", advice)


def _compared(subject: Subject, policy: Policy, directory: Path) -> Check:
    """The sampler's log-probs beside the trainer's."""
    config = subject.pipeline.update if subject.pipeline else UpdateConfig()
    temperature = subject.pipeline.rollout.temperature if subject.pipeline else 1.0
    if policy.template is None or not policy.engine.capabilities.logprobs:
        found = f"the engine '{subject.engine}' gives no token ids with log-probs here: evaluation only"
        return Check(AREA, "log-probs", "failed" if subject.pipeline else "warning", found, "See docs/endpoints.md.")
    calls = ModelCalls(subject.pipeline.rollout.endpoints if subject.pipeline else {})
    try:
        sampled = sample(policy.engine, policy.template, calls, temperature)
        # The embedded engine's model is loaded as the trainer's: a second copy would be the same numbers twice.
        model = getattr(policy.engine, "model", None)
        if model is None:
            model = trainer_model(directory, _device(config))
        compared = agreement(model, sampled, temperature=temperature, layout=config.layout, precision=config.precision)
    except DialrlError as error:
        return Check(AREA, "log-probs", "failed", str(error))
    return _judged(compared, config)


def _device(config: UpdateConfig) -> str:
    first = config.device.split(",")[0]
    if first != "auto":
        return first
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _judged(compared: Agreement, config: UpdateConfig) -> Check:
    """Whether the difference is rounding, something to know, or a fault."""
    bound = ON_POLICY if config.precision == "fp32" else _NARROW_ON_POLICY
    found = (
        f"sampler against trainer ({config.precision}): mean |difference| {compared.mean:.2g}, largest"
        f" {compared.largest:.2g} over {compared.tokens} tokens"
    )
    details = {"tokens": compared.tokens, "mean": compared.mean, "largest": compared.largest, "bound": bound}
    if compared.mean <= bound:
        return Check(AREA, "log-probs", "ok", found, details=details)
    advice = f"Expected a mean of at most {bound:g}. Compare precision, temperature and template of the two sides."
    status: Status = "failed" if compared.mean > config.max_mismatch else "warning"
    return Check(AREA, "log-probs", status, found, advice, details)


def _delivered(subject: Subject, policy: Policy, directory: Path) -> Check:
    """Give the engine its own weights once more, as ``train`` gives it new ones."""
    if subject.engine == "openai":
        advice = "Serve each new policy yourself, or let train start its own sampler: engine hf, or vllm."
        return Check(AREA, "delivery", "warning", "a server that dialrl did not start takes no weights", advice)
    if subject.engine != "hf":
        return Check(AREA, "delivery", "not applicable", f"the engine '{subject.engine}' was not asked")
    before = policy.engine.policy_digest
    try:
        policy.engine.load_weights(directory)
    except DialrlError as error:
        return Check(AREA, "delivery", "failed", f"weights do not arrive: {error}")
    same = policy.engine.policy_digest == before
    found = "copied in process, cached prefixes dropped; the digest is the policy's"
    return Check(AREA, "delivery", "ok" if same else "failed", found if same else "another digest after delivery")
