"""A published EMPA result file (docs/stages/import.md), read and checked: one dialogue with a judgement a turn.

Everything the importer relies on is checked here, with the file and the key in the error; whatever else stands in the
file is ignored. Not here: trajectory rows (``empa``).
"""

import json
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field, ValidationError

from dialrl.errors import InputError
from dialrl.trajectory.endings import STOP_RULE_REASONS

_PHRASES = (  # of termination_reason; the first that occurs decides: a collapse may be reported with a regression
    ("success", "success"),
    ("direction collapse", "collapse"),
    ("persistent regression", "regression"),
    ("oscillation", "oscillation"),
    ("max turns", "turn_limit"),
)


class HistoryEntry(BaseModel):
    """One message: the actor plays the user, ``test_model`` is the policy."""

    role: Literal["actor", "test_model"]
    content: str
    director_guidance: str | None = None


class Point(BaseModel):
    """The state after policy turn ``turn`` (0: before the first), and the judge's form behind it."""

    turn: int = Field(ge=0)
    position: list[float] = Field(alias="P_t")
    increment: list[float] = Field(alias="v_t")
    analysis: dict[str, Any] | None = Field(None, alias="mdep_analysis")


class Evaluation(BaseModel):
    """The key ``epj``."""

    deficit: list[float] = Field(alias="P_0_initial_deficit", min_length=1)
    trajectory: list[Point] = Field(min_length=1)
    every_turns: int = Field(1, alias="K")
    epsilon: float = 1.0


class PublishedDialogue(BaseModel):
    """One result file."""

    script_id: str = Field(min_length=1)
    termination_reason: str
    status: str
    history: list[HistoryEntry]
    epj: Evaluation
    test_model_name: str | None = None
    actor_model: str | None = None
    judger_model: str | None = None
    director_model: str | None = None

    @property
    def points(self) -> dict[int, Point]:
        """The judged points by policy turn, counted from 0; the initial point is left out."""
        return {point.turn - 1: point for point in self.epj.trajectory if point.turn > 0}

    @property
    def end_reason(self) -> str | None:
        """Why it ended, as the file format names it; None when the text says nothing known."""
        if self.status != "success":
            return "error"
        text = self.termination_reason.lower()
        return next((reason for phrase, reason in _PHRASES if phrase in text), None)


def read_published(path: Path) -> PublishedDialogue:
    """The dialogue in ``path``. Raises InputError naming the file and what is wrong in it."""
    try:
        content = json.loads(path.read_bytes().decode("utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        raise InputError(f"'{path}' is not valid JSON ({error}). Expected one published EMPA dialogue.") from None
    try:
        dialogue = PublishedDialogue.model_validate(content)
    except ValidationError as error:
        raise InputError(_faults(path, error)) from None
    _check(dialogue, path)
    return dialogue


def _faults(path: Path, error: ValidationError) -> str:
    first = error.errors()[0]
    key = ".".join(map(str, first["loc"])) or "the whole"
    more = f" ({error.error_count() - 1} more faults)" if error.error_count() > 1 else ""
    return f"'{path}' is no published EMPA dialogue: {key}: {first['msg']}{more}."


def _check(dialogue: PublishedDialogue, path: Path) -> None:
    replies = sum(entry.role == "test_model" for entry in dialogue.history)
    if not replies:
        raise InputError(f"'{path}' holds no reply of the policy (role test_model): there is no turn to import.")
    if dialogue.epj.every_turns != 1:
        raise InputError(f"'{path}' was judged every {dialogue.epj.every_turns} turns (epj.K); expected every turn.")
    if dialogue.end_reason is None:
        expected = ", ".join(f"'{phrase}'" for phrase, _ in _PHRASES)
        raise InputError(
            f"'{path}': termination_reason '{dialogue.termination_reason}' is not known;"
            f" expected one that holds {expected}."
        )
    _check_points(dialogue, path, replies)


def _check_points(dialogue: PublishedDialogue, path: Path, replies: int) -> None:
    turns = [point.turn for point in dialogue.epj.trajectory]
    if sorted(set(turns)) != sorted(turns):
        raise InputError(f"'{path}': epj.trajectory holds a turn twice: {turns}.")
    if max(turns) > replies:
        raise InputError(f"'{path}' judges turn {max(turns)} but history holds {replies} replies of the policy.")
    axes = len(dialogue.epj.deficit)
    for point in dialogue.epj.trajectory:
        if len(point.position) != axes or len(point.increment) != axes:
            raise InputError(f"'{path}', turn {point.turn}: P_t and v_t need {axes} axes, as the deficit has.")


def stopped_by_rule(end_reason: str) -> bool:
    """True when a rule on the state ended the dialogue, so that ``stop_turn`` stands."""
    return end_reason in STOP_RULE_REASONS


def _refuse_constant(name: str) -> float:
    raise ValueError(f"it holds {name}, which is no JSON number")
