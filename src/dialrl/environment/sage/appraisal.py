"""What the simulated user makes of the last reply: a signed change of emotion and why, read from a model's answer.

A change that is no number is no change: the answer is asked for again. Pure.
"""

import json
import math
import re
from dataclasses import dataclass
from typing import Any

LONGEST_ANALYSIS = 800
_FENCE = re.compile(r"```(?:json)?\s*\n(.*?)\n?\s*```", re.DOTALL)
_NUMBER = re.compile(r"\s*[+-]?\d{1,4}(\.\d+)?\s*")


@dataclass(frozen=True)
class Appraisal:
    """``change`` as the simulator gave it, before any rule holds it."""

    change: float
    analysis: str


def appraisal_schema(largest_change: float | None, longest_analysis: int = LONGEST_ANALYSIS) -> dict[str, Any]:
    """JSON schema of an appraisal: the thought, of so many characters at most, before the number."""
    bounds = {} if largest_change is None else {"minimum": -int(largest_change), "maximum": int(largest_change)}
    return {
        "type": "object",
        "properties": {
            "analysis": {"type": "string", "maxLength": longest_analysis},
            "change": {"type": "integer", **bounds},
        },
        "required": ["analysis", "change"],
        "additionalProperties": False,
    }


def read_appraisal(text: str) -> Appraisal | None:
    """The appraisal in an answer: JSON alone, in a code fence or between words; None where there is none.

    Example: '{"analysis": "He listens.", "change": "+5"}' -> a change of 5.
    """
    fence = _FENCE.search(text)
    between = text[text.find("{") : text.rfind("}") + 1]
    for candidate in (text, fence.group(1) if fence else "", between):
        try:
            value = json.loads(candidate, strict=False)  # a bare line break in a text is no reason to refuse it
        except (ValueError, RecursionError):
            continue
        change = _number(value.get("change")) if isinstance(value, dict) else None
        if change is not None:
            analysis = value.get("analysis")
            return Appraisal(change, analysis[:LONGEST_ANALYSIS] if isinstance(analysis, str) else "")
    return None


def _number(value: Any) -> float | None:
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        return float(value)
    if type(value) in (int, float) and math.isfinite(value):
        return float(value)
    return None
