"""Delivering weights: a ladder of ways, the best one that works, checked after every delivery.

Rungs, best first: *lora* (the adapter under a new name), *transfer* (vLLM's weight-transfer protocol, GPUs only),
*reload* (from disk, prefixes dropped), *restart*. A rung that fails, or after which the sampler's log-probs are not the
trainer's, is not used again in this run; the next one takes over at once. Field case 19. Not here: how vLLM is told
(``vllm_host``), what is compared (``delivery_probe``), trying rungs before training (``delivery_trial``).
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dialrl.engine.delivery_probe import Reference
from dialrl.engine.vllm_copy import servable
from dialrl.engine.vllm_host import Host, HostError
from dialrl.engine.vllm_settings import SERVED_NAME, Rung, VllmSettings
from dialrl.errors import EngineError
from dialrl.model.base import read_base
from dialrl.model.digest import policy_digest
from dialrl.model.loading import model_directory

_ADAPTER = "adapter"
_NOISE = 1e-5  # log-probs of equal weights differ by less than this in float32
_CLEARLY = 20.0  # times the noise: weights that moved this far can be told apart


@dataclass(frozen=True)
class Weights:
    """A policy as something to deliver. ``adapter``: its LoRA folder, which belongs to the model ``base_digest``."""

    policy: Path
    model: Path
    digest: str
    adapter: Path | None = None
    base_digest: str | None = None

    @property
    def adapter_name(self) -> str:
        return f"{SERVED_NAME}-{self.digest.removeprefix('sha256:')[:16]}"


def weights_of(policy: str | Path) -> Weights:
    """What lies in a policy directory: whole weights, and an adapter where it was trained as one."""
    model = model_directory(policy)
    folder = Path(policy) / _ADAPTER
    about = folder / "base.json"
    if not about.is_file():
        return Weights(Path(policy), model, policy_digest(model))
    return Weights(Path(policy), model, policy_digest(model), folder, read_base(about).digest)


@dataclass(frozen=True)
class Delivery:
    """One delivery. ``difference``: mean |log-prob| to the trainer, None where there was nothing to compare with.

    ``dropped``: rungs that failed on the way, with the reason.
    """

    rung: Rung
    digest: str
    difference: float | None
    seconds: float
    dropped: tuple[tuple[Rung, str], ...] = ()

    def figures(self) -> dict[str, Any]:
        """For the metrics of a run."""
        return {
            "rung": self.rung, "difference": self.difference, "seconds": round(self.seconds, 3),
            "dropped": dict(self.dropped),
        }  # fmt: skip

    def sentence(self) -> str:
        """One line for people."""
        found = "not compared" if self.difference is None else f"mean |log-prob difference| {self.difference:.2g}"
        lost = "".join(f"; {rung} dropped: {reason}" for rung, reason in self.dropped)
        return f"weights {self.digest[:19]} delivered by {self.rung} in {self.seconds:.1f} s, {found}{lost}"


@dataclass
class Ladder:
    """The rungs of one vLLM. ``settings.dtype`` is a resolved one; ``model_name``: what requests must ask for now."""

    host: Host
    settings: VllmSettings
    work: Path
    model_name: str = SERVED_NAME
    dropped: dict[Rung, str] = field(default_factory=dict)
    history: list[Delivery] = field(default_factory=list)
    _base_digest: str = ""
    _last: Reference | None = None

    def start(self, weights: Weights, reference: Reference | None, *, base: Path | None = None) -> Delivery:
        """Start vLLM with ``weights``; with ``base`` from that model, the adapter on top. Raises EngineError when the
        log-probs are not the trainer's: nothing is left to try then."""
        began = time.monotonic()
        adapter = weights.adapter if base is not None else None
        self.host.start(servable(base or weights.model, self.work))
        self._base_digest = weights.digest if base is None else policy_digest(base)
        self.model_name = SERVED_NAME
        if adapter is not None:
            self._add_adapter(weights)
        difference, fault = self._compared(reference)
        if fault is not None:
            raise EngineError(f"vLLM was started with '{weights.policy}', but {fault}. Check dtype and model.")
        self._last = reference
        return Delivery("restart" if adapter is None else "lora", weights.digest, difference, time.monotonic() - began)

    def deliver(self, weights: Weights, reference: Reference | None) -> Delivery:
        """Give vLLM other weights by the best rung left. Raises EngineError, with every reason, when none worked."""
        began = time.monotonic()
        failed: list[tuple[Rung, str]] = []
        for rung in self.rungs_for(weights):
            difference, fault = self.climb(rung, weights, reference)
            if fault is None:
                seconds = time.monotonic() - began
                delivery = Delivery(rung, weights.digest, difference, seconds, tuple(failed))
                self._last = reference
                self.history.append(delivery)
                return delivery
            failed.append((rung, fault))
            self.dropped[rung] = fault
        reasons = "; ".join(f"{rung}: {reason}" for rung, reason in [*self.dropped.items()]) or "no rung is allowed"
        raise EngineError(
            f"The weights of '{weights.policy}' could not be delivered to vLLM ({reasons}). Allow more rungs"
            " (engine_options.delivery), or resume the run with another engine."
        )

    def climb(self, rung: Rung, weights: Weights, reference: Reference | None) -> tuple[float | None, str | None]:
        """Use one rung, then compare: the difference found, and what is wrong (None: nothing)."""
        steps: dict[Rung, Callable[[Weights], None]] = {
            "lora": self._by_adapter, "transfer": self._by_transfer, "reload": self._by_reload,
            "restart": self._by_restart,
        }  # fmt: skip
        try:
            if rung == "restart":
                self._by_restart(weights)
            else:
                self.host.drain()
                try:
                    steps[rung](weights)
                finally:
                    self.host.resume()
            return self._compared(reference)
        except HostError as error:
            return None, str(error)

    def drop_adapter(self, reference: Reference) -> str | None:
        """Serve the model without its adapter again; what is wrong then (None: nothing)."""
        try:
            self.host.remove_adapter(self.model_name)
            self.model_name = SERVED_NAME
            return self._compared(reference)[1]
        except HostError as error:
            return str(error)

    def rungs_for(self, weights: Weights) -> list[Rung]:
        """The rungs that can carry ``weights``, best first."""
        return [rung for rung in self.settings.delivery if self.unusable(rung, weights) is None]

    def unusable(self, rung: Rung, weights: Weights) -> str | None:
        """Why a rung cannot carry ``weights`` now; None: it can."""
        if rung not in self.settings.delivery:
            return "not among engine_options.delivery"
        if rung in self.dropped:
            return f"dropped: {self.dropped[rung]}"
        if rung == "lora":
            return self._unusable_adapter(weights)
        return self.host.cannot_transfer() if rung == "transfer" else None

    def _unusable_adapter(self, weights: Weights) -> str | None:
        if weights.adapter is None:
            return "the policy has no adapter"
        if self.settings.lora_rank is None:
            return "engine_options.lora_rank is not set"
        if weights.base_digest != self._base_digest:
            return "the adapter belongs to another model than the one that is served"
        return None

    def _by_adapter(self, weights: Weights) -> None:
        before = self.model_name
        self._add_adapter(weights)
        if before not in (SERVED_NAME, self.model_name):
            self.host.remove_adapter(before)

    def _add_adapter(self, weights: Weights) -> None:
        if weights.adapter is None:
            raise HostError("the policy has no adapter")
        if self.model_name != weights.adapter_name:
            self.host.add_adapter(weights.adapter_name, weights.adapter)
        self.model_name = weights.adapter_name

    def _by_transfer(self, weights: Weights) -> None:
        self._base_digest = ""  # from here on it is neither the old model nor, until the probe, the new one
        self.host.transfer(servable(weights.model, self.work))
        self._serves(weights)

    def _by_reload(self, weights: Weights) -> None:
        self._base_digest = ""
        self.host.reload(servable(weights.model, self.work))
        self._serves(weights)

    def _by_restart(self, weights: Weights) -> None:
        self.host.stop()
        self.host.start(servable(weights.model, self.work))
        self._serves(weights)

    def _serves(self, weights: Weights) -> None:
        self._base_digest, self.model_name = weights.digest, SERVED_NAME

    def _compared(self, reference: Reference | None) -> tuple[float | None, str | None]:
        if reference is None:
            return None, None
        sampled = self.host.next_logprobs(reference.prompts, self.model_name)
        difference = reference.difference(sampled)
        return difference, self._fault(reference, sampled, difference)

    def _fault(self, reference: Reference, sampled: Sequence[dict[int, float]], difference: float) -> str | None:
        tolerance = self.settings.tolerance_for(self.settings.dtype)
        if not difference <= tolerance:
            return f"its log-probs differ from the trainer's by {difference:.3g} in the mean (at most {tolerance:g})"
        before = self._last
        if before is None or before.prompts != reference.prompts or self.settings.dtype != "float32":
            return None
        # A step too small for the tolerance: the new weights must still be nearer than the old ones.
        if reference.moved_from(before) > _CLEARLY * _NOISE and before.difference(sampled) < difference:
            return "its log-probs are still those of the weights before"
        return None
