"""A judge model's answer to levels, or the reason why there are none (field case 29). Pure.

Taken and marked as repaired: JSON in a code fence, between words or with bare line breaks in its texts, a level written
as a string or as 2.0. Missing: ``empty``, ``truncated``, ``no_json``, ``wrong_schema``, ``bad_type`` (true is no
number), ``out_of_range`` (never clipped). A level 0 that the judge *says* is a level.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dialrl.judge.base import Grade

Levels = Mapping[str, Sequence[int]]
"""The levels each graded part may have."""
LONGEST_TEXT = 300
_FENCE = re.compile(r"```(?:json)?\s*\n(.*?)\n?\s*```", re.DOTALL)
_WHOLE_NUMBER = re.compile(r"\s*[+-]?\d{1,9}\s*")


@dataclass(frozen=True)
class Reading:
    """``grades`` is empty iff ``error`` says why."""

    grades: tuple[Grade, ...] = ()
    error: str | None = None
    is_repaired: bool = False


class _MisfitError(Exception):
    """A part of the answer that is not as asked."""


def answer_schema(levels: Levels, longest_text: int = LONGEST_TEXT) -> dict[str, Any]:
    """JSON schema of an answer: evidence before level, every string bounded, every key required."""
    text = {"type": "string", "maxLength": longest_text}
    parts = {
        name: _closed({"evidence": text, "reasoning": text, "level": {"type": "integer", "enum": list(known)}})
        for name, known in levels.items()
    }
    return _closed(parts)


def _closed(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


def read_answer(text: str, finish_reason: str, levels: Levels) -> Reading:
    """The grades in ``text``. ``finish_reason`` "length" tells a cut answer from one that is no JSON."""
    if not text.strip():
        return Reading(error="truncated" if finish_reason == "length" else "empty")
    found, is_repaired = _json_in(text)
    if found is None:
        return Reading(error="truncated" if finish_reason == "length" else "no_json")
    try:
        read = [_grade(name, found, known) for name, known in levels.items()]
    except _MisfitError as misfit:
        return Reading(error=str(misfit))
    return Reading(tuple(grade for grade, _ in read), None, is_repaired or any(mended for _, mended in read))


def _json_in(text: str) -> tuple[Any, bool]:
    """The JSON value of the answer and whether something stood around it; (None, ...) when there is none."""
    fence = _FENCE.search(text)
    between = text[text.find("{") : text.rfind("}") + 1]
    inside = fence.group(1) if fence else ""
    # The last two may hold bare line breaks in their texts, which strict JSON may not.
    tries = ((text, True), (inside, True), (between, True), (inside, False), (between, False))
    for place, (candidate, is_strict) in enumerate(tries):
        try:
            return json.loads(candidate, strict=is_strict), place > 0
        except (ValueError, RecursionError):
            continue
    return None, False


def _grade(name: str, answer: Any, known: Sequence[int]) -> tuple[Grade, bool]:
    part = answer.get(name) if isinstance(answer, dict) else None
    if not isinstance(part, dict) or "level" not in part:
        raise _MisfitError(f"wrong_schema: no level for '{name}'")
    level, mended = _level(name, part["level"])
    if level not in known:
        raise _MisfitError(f"out_of_range: level {level} for '{name}'; expected one of {list(known)}")
    return Grade(name, level, _text(part.get("evidence")), _text(part.get("reasoning"))), mended


def _level(name: str, value: Any) -> tuple[int, bool]:
    if type(value) is int:
        return value, False
    if isinstance(value, float) and value.is_integer():
        return int(value), True
    if isinstance(value, str) and _WHOLE_NUMBER.fullmatch(value):
        return int(value), True
    raise _MisfitError(f"bad_type: level {value!r:.40} for '{name}'; expected a whole number")


def _text(value: Any) -> str | None:
    return value[:LONGEST_TEXT] if isinstance(value, str) and value else None
