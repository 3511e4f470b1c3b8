"""Text of a sampled reply: decoded unstripped, flagged where bytes were broken, thoughts told from words.

Text is for the environment, the judge and the reader; nothing here ever goes back to ids (field cases 1 and 32).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

OPENING = "<think>"
CLOSING = "</think>"
BROKEN_BYTES = "broken_bytes"


@dataclass(frozen=True)
class DecodedReply:
    """``text``: all that was sampled, without the stop token; ``reply`` and ``thinking``: its two parts.

    ``thinking`` is None for a reply without a think block. ``flags`` holds ``broken_bytes`` when the ids do not form
    valid UTF-8 and U+FFFD stands in the text.
    """

    text: str
    reply: str
    thinking: str | None
    flags: tuple[str, ...]


def decode_reply(
    decode: Callable[[Sequence[int]], str], reply_ids: Sequence[int], finish_reason: str, *, thinking_opened: bool
) -> DecodedReply:
    """The reply's text. With ``finish_reason`` "stop" the last id is the stop token and no part of the text."""
    spoken = reply_ids[:-1] if finish_reason == "stop" else reply_ids
    text = decode(spoken) if len(spoken) else ""
    thinking, reply = split_thinking(text, opened=thinking_opened)
    return DecodedReply(text, reply, thinking, (BROKEN_BYTES,) if "\ufffd" in text else ())


def split_thinking(text: str, *, opened: bool = False) -> tuple[str | None, str]:
    """``(thinking, reply)``, both unstripped; ``opened``: the prompt already wrote ``<think>``.

    ``"<think>\\nplan\\n</think>\\n\\nHello"`` gives ``("\\nplan\\n", "\\n\\nHello")``; a block that was cut before its
    end is all thinking: ``"<think>pl"`` gives ``("pl", "")``. Only a block at the very start counts.
    """
    body = text.lstrip()
    starts = body.startswith(OPENING)
    if not starts and not opened:
        return None, text
    inside = body[len(OPENING) :] if starts else text
    thinking, closed, reply = inside.partition(CLOSING)
    return thinking, reply if closed else ""
