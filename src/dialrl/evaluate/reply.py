"""A question to a model, and its answer as it came. Light to import. Not here: asking (``respondent``)."""

from dataclasses import dataclass

from dialrl.model.reply import split_thinking
from dialrl.scenario.message import Message


@dataclass(frozen=True)
class Asked:
    """One question; ``key`` names it within the evaluation, ``seed`` is that of its answer."""

    key: str
    messages: tuple[Message, ...]
    seed: int


@dataclass(frozen=True)
class Reply:
    """An answer as it came. ``text`` is None where none came, and ``error`` says why."""

    text: str | None
    finish_reason: str
    error: str | None = None

    @property
    def said(self) -> str:
        """The words without a block of thoughts at their start; empty without an answer."""
        return split_thinking(self.text or "")[1]
