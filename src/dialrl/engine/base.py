"""What an engine is: token ids in, token ids and log-probs out.

Two ways of working, told by ``EngineCapabilities.schedule``: a *block* engine takes the requests of a fixed block of
dialogues together (``generate_block``), so that batch composition is decided by the run and never by timing; a *stream*
engine takes requests as they come (``generate``) and keeps itself full. Not here: text, templates, dialogues.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from dialrl.errors import RunError
from dialrl.scenario.message import Message

FinishReason = Literal["stop", "length", "error"]


@dataclass(frozen=True)
class SamplingSettings:
    """How replies are drawn. Training needs the whole distribution: top_p 1, top_k 0, min_p 0 (docs/credit.md 3)."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    max_reply_tokens: int = 256
    context_limit_tokens: int | None = None

    @property
    def keeps_whole_distribution(self) -> bool:
        return self.top_p >= 1.0 and self.top_k == 0 and self.min_p <= 0.0


@dataclass(frozen=True)
class GenerationRequest:
    """One reply to draw: the whole context of the current segment, a seed, and the dialogue it belongs to.

    ``dialogue`` lets an engine reuse the prefix it computed for the same dialogue's last turn; it changes no result.
    An engine without token ids gets ``messages`` instead of ``prompt_ids``.
    """

    prompt_ids: Sequence[int]
    seed: int
    dialogue: str = ""
    max_reply_tokens: int | None = None
    messages: Sequence[Message] = ()


@dataclass(frozen=True)
class Generation:
    """A drawn reply: ``reply_ids`` include the end-of-turn token if it was sampled.

    An engine without token ids gives ``text`` and no ids; ``completion_tokens`` is then its length as reported.

    ``logprobs`` are under the distribution drawn from (after temperature), one per id, or None from an engine that
    cannot tell. ``finish_reason``: "stop" (a stop token was sampled), "length" (cut), "error".
    """

    reply_ids: list[int]
    logprobs: list[float] | None
    finish_reason: FinishReason
    prompt_tokens: int = 0
    cached_tokens: int = 0
    text: str | None = None
    completion_tokens: int = 0
    error: str | None = None

    def __post_init__(self) -> None:
        if self.logprobs is not None and len(self.logprobs) != len(self.reply_ids):
            raise RunError(
                f"An engine gave {len(self.reply_ids)} reply ids and {len(self.logprobs)} log-probs; expected one"
                " log-prob for each id, or none at all. Training on this would look healthy and learn nothing."
            )


@dataclass(frozen=True)
class EngineCapabilities:
    """What an engine can do; callers ask these flags, never the engine's name."""

    schedule: Literal["block", "stream"]
    token_ids: bool
    logprobs: bool
    deterministic: bool
    context_limit_tokens: int | None = None


class Engine(Protocol):
    """Draws replies from one policy."""

    capabilities: EngineCapabilities
    policy_digest: str

    def generate_block(self, requests: Sequence[GenerationRequest], sampling: SamplingSettings) -> list[Generation]:
        """One reply a request, in order (block engines)."""

    async def generate(self, request: GenerationRequest, sampling: SamplingSettings) -> Generation:
        """One reply (stream engines)."""

    def load_weights(self, policy: Path) -> None:
        """Take the weights of another policy directory of the same architecture; drops every cached prefix."""

    def close(self) -> None:
        """Free what the engine holds."""
