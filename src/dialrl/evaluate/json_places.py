"""Where a value stands in a JSON text: its line, found again from its path. Used only when a fault is to be named.

Not here: reading files (``stored``).
"""

import json
import re
from collections.abc import Iterator, Sequence

Key = str | int
_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\n\r]*")


def line_of(text: str, path: Sequence[Key], first_line: int = 1) -> int:
    r"""Line of the value at ``path``, or of the innermost object on the way to it that exists; lines end at ``\n``.

    ``text`` must be valid JSON. Example: in ``{"a": 1,\n "b": [0,\n 7]}`` the path ("b", 1) is on line 3.
    """
    place = _after_space(text, 0)
    for key in path:
        found = next((value for name, _, value in _members(text, place) if name == key), None)
        if found is None:
            break
        place = found
    return first_line + text.count("\n", 0, place)


def line_of_repeat(text: str, key: str) -> int:
    """Line on which ``key`` stands for the second time in one object; that of the text's begin if it never does."""
    waiting = [_after_space(text, 0)]
    while waiting:
        seen = 0
        for name, name_at, value_at in _members(text, waiting.pop(0)):
            seen += name == key
            if seen == 2:
                return 1 + text.count("\n", 0, name_at)
            waiting.append(value_at)
    return 1


def dotted(path: Sequence[Key]) -> str:
    """``history[2].content``: how messages name a field."""
    text = ""
    for key in path:
        text += f"[{key}]" if isinstance(key, int) else f".{key}" if text else key
    return text


def _members(text: str, start: int) -> Iterator[tuple[Key, int, int]]:
    """Name (or index), its place and the value's place of each member of the object or array at ``start``."""
    opening = text[start]
    if opening not in "{[":
        return
    place = _after_space(text, start + 1)
    index = 0
    while text[place] not in "}]":
        name: Key = index
        name_at = place
        if opening == "{":
            name, place = _DECODER.raw_decode(text, place)
            place = _after_space(text, _after_space(text, place) + 1)
        yield name, name_at, place
        _, place = _DECODER.raw_decode(text, place)
        place = _after_space(text, place)
        place = _after_space(text, place + 1) if text[place] == "," else place
        index += 1


def _after_space(text: str, place: int) -> int:
    found = _SPACE.match(text, place)
    return place if found is None else found.end()
