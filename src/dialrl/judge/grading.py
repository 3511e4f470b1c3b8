"""Verdicts to file columns: the one place where levels become increments and positions, live and afterwards alike.

``DialogueGrader`` follows one dialogue: it takes each turn's verdict, gives the judge columns of its row and says when
a stop rule fired. A missing judgement carries the position forward (docs/state-model.md), it is never a number. Not
here: asking a judge, and files.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dialrl.environment.base import Environment
from dialrl.judge.base import Grade, GradeSample, TurnVerdict
from dialrl.state.rubric import Rubric
from dialrl.state.rules import StopRules
from dialrl.state.stop import StopTracker, need_met
from dialrl.trajectory.rows import storable

JUDGE_COLUMNS = (
    "deficit", "increment", "position", "position_estimated", "grades", "grade_samples", "judge_status",
    "judge_error", "stop_turn",
)  # fmt: skip


@dataclass
class DialogueGrader:
    """State of one dialogue under a rubric: deficit P_0 (A,), position (A,), and the stop rules."""

    rubric: Rubric
    deficit: tuple[float, ...]
    rules: StopRules

    def __post_init__(self) -> None:
        self._tracker = StopTracker(self.deficit, self.rules)
        self._missing = 0
        self._end_position = self.deficit
        self.stop_turn: int | None = None
        self.stop_reason: str | None = None

    @property
    def position(self) -> tuple[float, ...]:
        return tuple(float(value) for value in self._tracker.position)

    @property
    def success_holds(self) -> bool:
        """Whether the success rule holds now, be it set to stop the dialogue or not."""
        met = need_met(self._tracker.position[None], self._tracker.deficit, self.rules.alpha)
        return self._tracker.turns >= self.rules.min_turns and bool(met[0])

    def add(self, verdict: TurnVerdict, *, turn: int) -> dict[str, Any]:
        """Judge columns of one row, ``stop_turn`` apart, which is known at the end of the dialogue."""
        increment = self._increment(verdict)
        reason = self._tracker.add(increment)
        if self.stop_turn is None:
            self._missing += increment is None
            self._end_position = self.position
            self.stop_turn, self.stop_reason = (None, None) if reason is None else (turn, reason)
        return {
            "deficit": list(self.deficit),
            "increment": increment,
            "position": list(self.position),
            "position_estimated": increment is None,
            "grades": _grade_rows(verdict),
            "grade_samples": [vars(sample) for sample in verdict.samples] or None,
            "judge_status": verdict.status,
            "judge_error": verdict.error,
        }

    def outcome(self, environment: Environment, end_reason: str | None, own: float | None) -> float | None:
        """The dialogue's outcome up to its stop: the environment's ``own``, or by the grades where it defines it so.

        By the grades it is null while one of them is missing.
        """
        if end_reason is None or end_reason == "error":
            return own
        reason = end_reason if self.stop_reason is None else self.stop_reason
        by_grades = environment.graded_outcome(reason, self.deficit, self._end_position)
        if by_grades is None:
            return own
        return None if self._missing else by_grades

    def _increment(self, verdict: TurnVerdict) -> list[float] | None:
        if verdict.status == "missing":
            return None
        return list(self.rubric.increment_from_levels({grade.indicator: grade.level for grade in verdict.grades}))


def verdict_of(row: Mapping[str, Any]) -> TurnVerdict:
    """The verdict that a row holds, as it was given: what ``DialogueGrader.add`` made the columns from."""
    grades = tuple(Grade(**grade) for grade in row["grades"] or ())
    samples = tuple(GradeSample(**sample) for sample in row.get("grade_samples") or ())
    return TurnVerdict(grades, row["judge_status"], row.get("judge_error"), samples)


def _grade_rows(verdict: TurnVerdict) -> list[dict[str, Any]] | None:
    if verdict.status == "missing":
        return None
    return [
        {**vars(grade), "evidence": _words(grade.evidence), "reasoning": _words(grade.reasoning)}
        for grade in verdict.grades
    ]


def _words(text: str | None) -> str | None:
    return None if text is None else storable(text)


FAILED_DIALOGUE = "the dialogue failed in the rollout"
NO_REPLY = "there is no reply to grade"


def ungraded(deficit: Sequence[float] | None, error: str) -> dict[str, Any]:
    """Judge columns of a turn whose dialogue cannot be followed (it failed, or P_0 is not known): nothing moves."""
    point = None if deficit is None else list(deficit)
    unknown = dict.fromkeys(JUDGE_COLUMNS)
    known = {"deficit": point, "position": point, "position_estimated": True}
    return {**unknown, **known, "judge_status": "missing", "judge_error": error}


def with_stop_turn(rows: Sequence[dict[str, Any]], stop_turn: int | None) -> None:
    """Write ``stop_turn`` on every row of a dialogue."""
    for row in rows:
        row["stop_turn"] = stop_turn
