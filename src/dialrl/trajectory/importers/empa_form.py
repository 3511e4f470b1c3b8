"""The judge's form of one published turn: keys such as ``C_Prog_level`` to grades on a rubric's indicators.

A model filled these forms in, so keys are sometimes misspelt (``P Neg_level``) and levels sometimes text. What can be
read without doubt is read and the turn marked *repaired*; nothing is guessed. Not here: positions and rows (``empa``).
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
    """``form`` as grades in the rubric's order."""
    loose = {_letters(key): value for key, value in form.items()}
    grades, repaired, absent = [], [], []
    for indicator in rubric.indicator_names:
        exact = indicator.replace(".", "_")
        level, mended = _level(form, loose, exact)
        if level is None:
            absent.append(indicator)
            continue
        if mended:
            repaired.append(indicator)
        grades.append(
            {
                "indicator": indicator,
                "level": level,
                "evidence": _text(form, loose, f"{exact}_evidence"),
                "reasoning": _text(form, loose, f"{exact}_reasoning") if reasoning else None,
            }
        )
    notes = [f"level misspelt: {', '.join(repaired)}"] if repaired else []
    notes += [f"level absent: {', '.join(absent)}"] if absent else []
    return ReadForm(grades, "repaired" if notes else "ok", "; ".join(notes) or None)


def _level(form: Mapping[str, Any], loose: Mapping[str, Any], indicator: str) -> tuple[int | None, bool]:
    key = f"{indicator}_level"
    value = form.get(key, loose.get(_letters(key)))
    mended = key not in form or not isinstance(value, int)
    if isinstance(value, bool):
        return None, False
    if isinstance(value, int):
        return value, mended
    try:
        number = float(value) if isinstance(value, str | float) else None
    except ValueError:
        return None, False
    return (int(number), mended) if number is not None and number.is_integer() else (None, False)


def _text(form: Mapping[str, Any], loose: Mapping[str, Any], key: str) -> str | None:
    value = form.get(key, loose.get(_letters(key)))
    return value if isinstance(value, str) and value.strip() not in NO_EVIDENCE else None


def _letters(key: str) -> str:
    return "".join(letter for letter in key.lower() if letter.isalnum())
