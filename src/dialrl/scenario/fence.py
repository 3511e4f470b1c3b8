"""Dialogue text inside a prompt, so that it stays text: one line of JSON a message.

JSON keeps quotes and line breaks of the text inside its line; angle brackets and the rarer line separators are escaped
too, so that no text spells a control token, a tag or a new line of the prompt. Pure.
"""

import json
from collections.abc import Sequence

from dialrl.scenario.message import Message

_ESCAPES = {ord(letter): f"\\u{ord(letter):04x}" for letter in "<>\x7f\x85\u2028\u2029"}
SPEAKERS = {"user": "person", "assistant": "helper"}


def shortened(text: str, longest_characters: int | None) -> str:
    """``text``; the middle of a longer one is left out, and said so.

    Example: "abcdefgh" of at most 4 gives "ab [... 4 characters left out ...] gh".
    """
    if longest_characters is None or len(text) <= longest_characters:
        return text
    half = longest_characters // 2
    left_out = len(text) - 2 * half
    return f"{text[:half]} [... {left_out} characters left out ...] {text[len(text) - half :]}"


def quoted(text: str, longest_characters: int | None = None) -> str:
    """``text`` as one JSON string on one line, ``shortened``.

    Example: 'a "b"<c>' gives "a \\"b\\"\\u003cc\\u003e" (with its quotation marks).
    """
    return json.dumps(shortened(text, longest_characters), ensure_ascii=False).translate(_ESCAPES)


def fenced(dialogue: Sequence[Message], longest_characters: int | None = None) -> str:
    """One line a message of person and helper; a helper's line has the number of the reply, from 1.

    Appending a message appends a line, so prompts that end in a dialogue share their beginning (field case 31).
    """
    lines, replies = [], 0
    for message in dialogue:
        if message.role not in SPEAKERS:
            continue
        replies += message.role == "assistant"
        number = f'"reply": {replies}, ' if message.role == "assistant" else ""
        text = quoted(message.content, longest_characters)
        lines.append(f'{{{number}"speaker": "{SPEAKERS[message.role]}", "text": {text}}}')
    return "\n".join(lines)
