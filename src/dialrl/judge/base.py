"""What a judge is: a grader of one policy turn at a time, on a rubric of ordinal indicators.

The judge gives levels; arithmetic (scores, increments, positions, rewards) is the state model's. A failed judgement is
a verdict with status "missing", never a number and never an exception. Not here: prompts, caches, the stage.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from dialrl.scenario.card import Scenario
from dialrl.scenario.message import Message, Usage

ROLE = "judge"
"""The role of a judge's calls: in the column ``usage``, and in what calls cost."""
JudgeStatus = Literal["ok", "repaired", "missing"]


@dataclass(frozen=True)
class Grade:
    """One indicator's level with the quoted evidence."""

    indicator: str
    level: int
    evidence: str | None = None
    reasoning: str | None = None


@dataclass(frozen=True)
class GradeSample:
    """One of several samples or panel members behind a verdict; ``level`` is None where that sample failed."""

    judge: str
    sample: int
    indicator: str
    level: int | None
    status: str


@dataclass(frozen=True)
class TurnVerdict:
    """The verdict on one turn. ``grades`` is empty iff ``status`` is "missing"; ``error`` then says why."""

    grades: tuple[Grade, ...]
    status: JudgeStatus
    error: str | None = None
    samples: tuple[GradeSample, ...] = ()
    usage: tuple[Usage, ...] = ()


class Judge(Protocol):
    """Grades turns; one assessment of the initial deficit a group."""

    name: str
    rubric: str

    async def assess(self, scenario: Scenario, opening: Sequence[Message], seed: int) -> tuple[float, ...]:
        """Initial deficit P_0 by axis, one a group (docs/state-model.md)."""

    async def grade(self, scenario: Scenario, dialogue: Sequence[Message], turn: int, seed: int) -> TurnVerdict:
        """Verdict on policy turn ``turn`` (from 0); ``dialogue`` ends with that reply."""
