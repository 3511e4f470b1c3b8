"""What is odd about the actor's line beyond ``environment.simulator``: the card read out, marks of the machinery, a
farewell too early, a line that was cut. Flags only; the line stays as it is (field case 25). Pure.
"""

import re
from collections.abc import Mapping
from typing import Any

from dialrl.environment.support.director import PURPOSES

CARD_LEAK, MARKER_LEAK, EARLY_FAREWELL, CUT_LINE = "card_leak", "marker_leak", "early_farewell", "user_cut"
LEAK_CHARACTERS, LEAK_CHARACTERS_DENSE = 40, 16
# Han, kana and hangul: a character there is a syllable or a word.
_DENSE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")


def spans_of(values: Any) -> frozenset[str]:
    """Every stretch of the texts in ``values`` that no line should repeat word for word: 40 letters, 16 in a script
    whose characters are syllables or words.
    """
    if isinstance(values, Mapping):
        return frozenset().union(*(spans_of(value) for value in values.values()))
    text = _letters(values) if isinstance(values, str) else ""
    is_dense = 2 * len(_DENSE.findall(text)) > len(text)
    length = LEAK_CHARACTERS_DENSE if is_dense else LEAK_CHARACTERS
    return frozenset(text[place : place + length] for place in range(len(text) - length + 1))


def line_oddities(
    text: str, *, spans: frozenset[str], end_marker: str, is_early_end: bool, is_cut: bool
) -> tuple[str, ...]:
    """Flags of one line. ``spans``: ``spans_of`` the card's descriptions (its story may be told in its own words)."""
    letters = _letters(text)
    lengths = (LEAK_CHARACTERS, LEAK_CHARACTERS_DENSE)
    leaks = any(letters[place : place + length] in spans for length in lengths for place in range(len(letters)))
    fragment = end_marker.strip("#[]<> ")
    marks = (
        fragment in text or "###" in text or any(re.search(rf"\b{tool}\b", text) for tool in PURPOSES if "_" in tool)
    )
    found = {CARD_LEAK: leaks, MARKER_LEAK: marks, EARLY_FAREWELL: is_early_end, CUT_LINE: is_cut}
    return tuple(flag for flag, holds in found.items() if holds)


def _letters(text: str) -> str:
    return " ".join(text.casefold().split())
