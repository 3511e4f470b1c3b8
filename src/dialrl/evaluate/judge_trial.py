"""Has a judge grade the planted replies, each several times; a grading that fails is missing, with its reason.

The judge's cache of answers is not asked: what was kept agrees with itself. Not here: measures (``judge_measures``).
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from dialrl.concurrency import run_async
from dialrl.endpoint.calls import ModelCalls, calls_of, connect
from dialrl.engine.serving.opening import serve_named
from dialrl.environment.support.environment import SupportEnvironment
from dialrl.evaluate.asking_config import with_address
from dialrl.evaluate.judge_config import JudgeTrialConfig
from dialrl.evaluate.planted import Planted
from dialrl.judge.asking import ask
from dialrl.judge.base import Grade, Judge, TurnVerdict
from dialrl.progress import SILENT, Progress
from dialrl.scenario.card import Scenario
from dialrl.seeds import seed_for
from dialrl.state.rubric import Rubric


@dataclass(frozen=True)
class Graded:
    """One grading of one planted reply."""

    reply: Planted
    repeat: int
    verdict: TurnVerdict
    total: float | None  # sum of the increments of all axes; None where the grading is missing

    def level(self, indicator: str) -> int | None:
        return next((grade.level for grade in self.verdict.grades if grade.indicator == indicator), None)


def total_score(verdict: TurnVerdict, rubric: Rubric) -> float | None:
    """Sum of the increments of all axes. Example: increments (3, -2, 1) -> 2."""
    if verdict.status == "missing":
        return None
    return sum(rubric.increment_from_levels({grade.indicator: grade.level for grade in verdict.grades}))


class Trial:
    """``judge`` under test; ``folder`` is where its answers are kept meanwhile, None: in memory."""

    def __init__(self, judge: Judge, rubric: Rubric, config: JudgeTrialConfig, folder: Path | None) -> None:
        self.judge, self.rubric, self.config = judge, rubric, config
        reached = config.updated(endpoints=with_address(config.endpoints, config.base_url), cache=False)
        self.calls: ModelCalls = calls_of(reached, None if folder is None else folder / "calls.jsonl")
        connect(self.calls, judge)
        serve_named(reached.endpoints)

    def grade(
        self,
        replies: Sequence[Planted],
        kept: Mapping[str, TurnVerdict] = MappingProxyType({}),
        progress: Progress = SILENT,
    ) -> list[Graded]:
        """Every reply ``config.repeats`` times, but for gradings that are ``kept`` (by item).

        Raises InputError for a card that does not exist.
        """
        cards = SupportEnvironment(**self.config.environment_options)
        scenarios = {reply.state.id: cards.find(reply.state.card) for reply in replies}
        progress.start("evaluate judge", len(replies) * self.config.repeats, "gradings")
        return run_async(self._grade_all(replies, scenarios, kept, progress))

    async def _grade_all(
        self,
        replies: Sequence[Planted],
        scenarios: Mapping[str, Scenario],
        kept: Mapping[str, TurnVerdict],
        progress: Progress,
    ) -> list[Graded]:
        slots = asyncio.Semaphore(self.config.concurrency)

        async def one(reply: Planted, repeat: int) -> Graded:
            verdict = kept.get(f"{reply.name}/{repeat}")
            if verdict is None:
                async with slots:
                    verdict = await self._verdict(reply, repeat, scenarios[reply.state.id])
            progress.advance()
            return Graded(reply, repeat, verdict, total_score(verdict, self.rubric))

        async with self.calls:
            wanted = [(reply, repeat) for reply in replies for repeat in range(self.config.repeats)]
            return await asyncio.gather(*(one(reply, repeat) for reply, repeat in wanted))

    async def _verdict(self, reply: Planted, repeat: int, scenario: Scenario) -> TurnVerdict:
        seed = seed_for(self.config.sampling_seed, 0, reply.name, repeat, reply.turn, "judge")
        call = self.judge.grade(scenario, reply.dialogue, reply.turn, seed)
        return await ask(call, self.rubric, timeout_seconds=self.config.call_timeout_seconds)


def kept_verdicts(rows: Iterable[Mapping[str, Any]]) -> dict[str, TurnVerdict]:
    """The gradings in the rows of a results file that are not missing, by item."""
    return {
        row["item"]: TurnVerdict(tuple(Grade(**grade) for grade in row["grades"]), row["status"])
        for row in rows
        if row["grades"]
    }
