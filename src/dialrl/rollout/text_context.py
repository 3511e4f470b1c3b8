"""A dialogue as messages, for an engine that takes and gives text: evaluated, never trained.

Has the face of ``dialrl.model.context.DialogueContext``; its ids are always empty and the columns of ids null.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from dialrl.model.context import TurnPrompt
from dialrl.scenario.message import Message


@dataclass
class TextContext:
    """The messages so far; the endpoint applies its own template, so there is one segment and nothing to count."""

    messages: list[Message] = field(default_factory=list)
    context_ids: list[int] = field(default_factory=list)
    reencoded_replies: int = 0

    def open(self, messages: Sequence[Message]) -> TurnPrompt:
        return self.next(messages)

    def add_reply(self, reply_ids: Sequence[int], text: str, finish_reason: str) -> None:
        self.messages.append(Message("assistant", text))

    def next(self, messages: Sequence[Message]) -> TurnPrompt:
        self.messages.extend(messages)
        return TurnPrompt(0, [])

    def final(self, messages: Sequence[Message]) -> list[int]:
        return []
