"""Verdicts to file columns: the one place where levels become increments and positions, live and afterwards alike.

``DialogueGrader`` follows one dialogue: it takes each turn's verdict, gives the judge columns of its row and says when
a stop rule fired. A missing judgement carries the position forward (docs/state-model.md), it is never a number. Not
here: asking a judge, and files.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dialrl.environment.base import Environment
from dialrl.judge.base import TurnVerdict
from dialrl.state.rubric import Rubric
from dialrl.state.rules import StopRules
from dialrl.state.stop import StopTracker

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
        self.stop_turn: int | None = None
        self.stop_reason: str | None = None

    @property
    def position(self) -> tuple[float, ...]:
        return tuple(float(value) for value in self._tracker.position)

    def add(self, verdict: TurnVerdict, *, turn: int) -> dict[str, Any]:
        """Judge columns of one row, ``stop_turn`` apart, which is known at the end of the dialogue."""
        increment = self._increment(verdict)
        self._missing += increment is None
        reason = self._tracker.add(increment)
        if reason is not None and self.stop_turn is None:
            self.stop_turn, self.stop_reason = turn, reason
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

    def outcome(self, environment: Environment, end_reason: str | None) -> float | None:
        """The graded dialogue's outcome; null when a judgement is missing or the environment has none from grades."""
        if self._missing or end_reason is None or end_reason == "error":
            return None
        reason = end_reason if self.stop_reason is None else self.stop_reason
        return environment.graded_outcome(reason, self.deficit, self.position)

    def _increment(self, verdict: TurnVerdict) -> list[float] | None:
        if verdict.status == "missing":
            return None
        return list(self.rubric.increment_from_levels({grade.indicator: grade.level for grade in verdict.grades}))


def _grade_rows(verdict: TurnVerdict) -> list[dict[str, Any]] | None:
    if verdict.status == "missing":
        return None
    return [vars(grade) for grade in verdict.grades]


def with_stop_turn(rows: Sequence[dict[str, Any]], stop_turn: int | None) -> None:
    """Write ``stop_turn`` on every row of a dialogue."""
    for row in rows:
        row["stop_turn"] = stop_turn
