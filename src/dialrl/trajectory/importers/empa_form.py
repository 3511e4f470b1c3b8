"""The judge's form of one published turn: keys such as ``C_Prog_level`` to grades on a rubric's indicators.

A model filled these forms in, so a key is sometimes misspelt (``P Neg_level``). The published increment counts such an
indicator as 0, and with it everything that followed in the dialogue; so it gets no grade here, the turn is marked
*repaired*, and the level that stands under the misspelt key is named in ``judge_error``. Not here: positions and rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dialrl.errors import InputError
from dialrl.state.rubric import Rubric

NO_EVIDENCE = ("", "0")  # what the published judge wrote where it had none


@dataclass(frozen=True)
class ReadForm:
    """Grades as rows of the column ``grades``; ``status`` ok or repaired, and what was amiss."""

    grades: list[dict[str, Any]]
    status: str
    error: str | None

    def agrees(self, rubric: Rubric, increment: list[float]) -> bool:
        """True when the levels give the published increment; an indicator without a level counts 0."""
        levels = dict.fromkeys(rubric.indicator_names, 0) | {g["indicator"]: g["level"] for g in self.grades}
        try:
            return list(rubric.increment_from_levels(levels)) == increment
        except InputError:
            return False


def read_form(form: Mapping[str, Any], rubric: Rubric, *, reasoning: bool) -> ReadForm:
    """``form`` as grades in the rubric's order; an indicator without a readable level is left out and named."""
    grades, faults = [], []
    for indicator in rubric.indicator_names:
        key = indicator.replace(".", "_")
        level = _level(form.get(f"{key}_level"))
        if level is None:
            faults.append(_fault(form, key))
            continue
        evidence = _text(form.get(f"{key}_evidence"))
        reason = _text(form.get(f"{key}_reasoning")) if reasoning else None
        grades.append({"indicator": indicator, "level": level, "evidence": evidence, "reasoning": reason})
    return ReadForm(grades, "repaired" if faults else "ok", "; ".join(faults) or None)


def _level(value: Any) -> int | None:
    """A level: a whole number, also as text or with a decimal point; anything else is none."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return int(number) if number.is_integer() else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value.strip() not in NO_EVIDENCE else None


def _fault(form: Mapping[str, Any], key: str) -> str:
    """What stands where the level of ``key`` should be."""
    wanted = f"{key}_level"
    if wanted in form:
        return f"{wanted} is {str(form[wanted])[:40]!r}, counted as 0"
    for other, value in form.items():
        if _letters(other) == _letters(wanted):
            return f"{wanted} stands as '{other}' ({str(value)[:40]}), counted as 0"
    return f"{wanted} is absent, counted as 0"


def _letters(key: str) -> str:
    return "".join(letter for letter in key.lower() if letter.isalnum())
