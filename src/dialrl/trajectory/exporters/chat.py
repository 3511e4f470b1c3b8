"""A dialogue's rows as chat messages: what stood before each reply, and the reply. Not here: which dialogues go out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]
ChatMessage = dict[str, str]


@dataclass(frozen=True)
class ChatTurn:
    """One reply with its context: all messages before it, the dialogue's earlier replies as the assistant's."""

    row: Row
    context: tuple[ChatMessage, ...]

    @property
    def reply(self) -> ChatMessage:
        return {"role": "assistant", "content": self.row["reply"]}

    @property
    def context_key(self) -> tuple[tuple[str, str], ...]:
        """Equal for equal contexts."""
        return tuple((message["role"], message["content"]) for message in self.context)


def chat_turns(rows: Sequence[Row], *, until_end: bool = False) -> list[ChatTurn]:
    """The turns of one dialogue, in order, up to the one at which a stop rule fired.

    A turn without a reply ends the list: what follows it would stand in a context that never was.
    Example: rows (system, hello -> hi), (bye -> ciao) give contexts of 2 and 4 messages.
    """
    turns: list[ChatTurn] = []
    context: list[ChatMessage] = []
    for row in counted_rows(rows, until_end=until_end):
        if row.get("reply") is None:
            break
        context += [_message(message) for message in row.get("messages") or ()]
        turns.append(ChatTurn(row, tuple(context)))
        context.append(turns[-1].reply)
    return turns


def counted_rows(rows: Sequence[Row], *, until_end: bool = False) -> list[Row]:
    """The rows up to ``stop_turn``, all where there is none."""
    stop = rows[0].get("stop_turn")
    return list(rows) if until_end or stop is None else [row for row in rows if row["turn"] <= stop]


def _message(message: Row) -> ChatMessage:
    return {"role": message["role"], "content": message["content"] or ""}
