"""What the delivery ladder needs of a running vLLM, however it is reached: a server, or inside this process.

Every method returns when the thing is done, and raises HostError with the reason when it could not be done. Not here:
which of them is tried when (``delivery``).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from dialrl.errors import RunError


class HostError(RunError):
    """vLLM refused or failed at something it was told to do."""


class Host(Protocol):
    """One vLLM. ``model``: the directory whose weights it was started with or last given."""

    model: Path | None

    def start(self, model: Path) -> None:
        """Load ``model`` and be ready. Raises EngineError when that fails."""

    def stop(self) -> None:
        """End it, with every process it started."""

    def drain(self) -> None:
        """Let running requests finish and hold new ones back."""

    def resume(self) -> None:
        """Serve again."""

    def reload(self, model: Path) -> None:
        """Weights of ``model`` into the running model, in place; every cached prefix is dropped."""

    def transfer(self, model: Path) -> None:
        """Weights of ``model`` over the weight-transfer protocol; every cached prefix is dropped."""

    def cannot_transfer(self) -> str | None:
        """Why the weight-transfer protocol is not to be had here; None: it is."""

    def add_adapter(self, name: str, folder: Path) -> None:
        """A LoRA adapter under a new name, which requests may then ask for."""

    def remove_adapter(self, name: str) -> None:
        """Forget an adapter."""

    def next_logprobs(self, prompts: Sequence[Sequence[int]], model_name: str) -> list[dict[int, float]]:
        """For each prompt the log-probs of its most probable next tokens, by id, as the sampler sees them."""
