"""A gate: measures against requirements such as ``alpha>=0.667``; what is not known is not met. Pure.

Not here: the measures.
"""

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dialrl.config import nearest
from dialrl.errors import UsageError

_SIGNS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_REQUIREMENT = re.compile(r"\s*([a-z_]\w*)\s*(>=|<=|>|<)\s*([+-]?\d+(?:\.\d+)?)\s*")
_ROUNDING = 1e-9  # a mean of whole numbers that is 0 may come out a hair beside it


@dataclass(frozen=True)
class Requirement:
    """One measure, a sign, and a threshold."""

    measure: str
    sign: str
    threshold: float

    @classmethod
    def parse(cls, text: str, known: Sequence[str]) -> "Requirement":
        """Example: "alpha>=0.6". Raises UsageError for what is none, or for a measure that does not exist."""
        found = _REQUIREMENT.fullmatch(text)
        if found is None:
            raise UsageError(f"--require got '{text}'; expected MEASURE>=NUMBER or MEASURE<=NUMBER, as alpha>=0.667.")
        measure, sign, threshold = found.groups()
        if measure not in known:
            raise UsageError(
                f"--require {text}: there is no measure '{measure}'.{nearest(measure, known)} Known:"
                f" {', '.join(known)}."
            )
        return cls(measure, sign, float(threshold))

    def __str__(self) -> str:
        return f"{self.measure}{self.sign}{self.threshold:g}"

    def is_met(self, value: float | None) -> bool:
        """False for a value that is not known. Example: "gain<=0" is met by 0 and by -1."""
        if value is None:
            return False
        slack = _ROUNDING if self.sign == "<=" else -_ROUNDING if self.sign == ">=" else 0.0
        return _SIGNS[self.sign](value, self.threshold + slack)


def gate(values: Mapping[str, float | None], requirements: Sequence[Requirement]) -> dict[str, dict[str, Any]]:
    """By requirement: the value, and whether it meets it."""
    return {
        str(one): {"value": values.get(one.measure), "met": one.is_met(values.get(one.measure))} for one in requirements
    }


def unmet(gated: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A sentence part for each requirement that is not met."""
    return [
        f"{name} ({'not known' if entry['value'] is None else format(entry['value'], '.3g')})"
        for name, entry in gated.items()
        if not entry["met"]
    ]
