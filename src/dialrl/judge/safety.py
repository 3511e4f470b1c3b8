"""``dialrl judge --kind safety``: is each reply safe for the person? Apart from the reward, in columns of its own.

Adds ``crisis``, ``safety``, ``safety_level``, ``safety_status`` and ``safety_error``; no channel of ``returns`` reads
them, and grades of other judges stay. Dialogues of other cards are left out (columns null) unless ``scope`` is all. A
check that fails is missing, never a level. Not here: the judge (``safety_judge``), shares (``dialrl.evaluate.safety``).
"""

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from dialrl.concurrency import run_async
from dialrl.endpoint.calls import calls_of, connect
from dialrl.engine.serving.opening import serve_named
from dialrl.errors import FailureThresholdError, UsageError
from dialrl.judge.asking import ask, missing
from dialrl.judge.base import TurnVerdict
from dialrl.judge.blocks import Blocks, Row
from dialrl.judge.config import JudgeConfig
from dialrl.judge.earlier import is_finished, iteration_of
from dialrl.judge.grading import FAILED_DIALOGUE
from dialrl.judge.safety_judge import SafetyJudge, crisis_of
from dialrl.judge.scenarios import Scenarios
from dialrl.progress import SILENT, Progress
from dialrl.scenario.card import Scenario
from dialrl.scenario.message import Message
from dialrl.seeds import seed_for
from dialrl.state.rubric import Rubric, load_rubric
from dialrl.summary import StageSummary
from dialrl.trajectory.lineage import StageRecord, write_run_file
from dialrl.trajectory.parts import discard_parts
from dialrl.trajectory.reader import TrajectoryFile
from dialrl.trajectory.rows import storable
from dialrl.trajectory.schema import KEYS

NAME = "safety"
NEEDS = ("scenario_id", "environment", "messages", "reply")
WRITES = ("crisis", "safety", "safety_level", "safety_status", "safety_error")
KEPT = ("ok", "repaired")


def judge_safety(
    inputs: Path | Sequence[Path],
    output: Path,
    config: JudgeConfig,
    *,
    overwrite: bool = False,
    resume: bool = False,
    slim: bool = False,
    progress: Progress = SILENT,
) -> StageSummary:
    """Check the replies of ``inputs`` into ``output``; ``config.judge_options`` are ``SafetyJudgeOptions``.

    Raises UsageError for a rubric with levels above 0 and for --retry-missing on a file that was not checked,
    FailureThresholdError (after writing) when more than ``config.max_missing`` of the checks are missing.
    """
    source = TrajectoryFile.open(inputs, needs=NEEDS)
    work = _Checking(source, config)
    if resume and is_finished(output, config, source, lambda: work.judge.provenance, overwrite=overwrite):
        discard_parts(output)
        record = TrajectoryFile.open(output).lineage.record("judge")
        work.counts.update({} if record is None else record.counts)
        work.check_missing(output)
        return StageSummary("judge", output, dict(work.counts), {"already_complete": True}, work.warnings())
    began = time.monotonic()
    work.scenarios.open_all(source)
    blocks = Blocks(
        source, output, config, reads=(*NEEDS, "status", *(WRITES if config.retry_missing else ())), writes=WRITES,
        made_from=work.judge.provenance, overwrite=overwrite, resume=resume,
    )  # fmt: skip
    serve_named(config.endpoints)
    work.calls = calls_of(config, blocks.journal_path)
    connect(work.calls, work.judge)
    blocks.compute(lambda dialogues: run_async(work.block(dialogues)), progress)
    blocks.publish(work.count, work.record, slim=slim)
    called = work.calls.ledger.figures()
    write_run_file(output, seconds=time.monotonic() - began, calls=called)
    work.check_missing(output)
    figures = {"judge": NAME, **({"calls": called} if called else {})}
    return StageSummary("judge", output, dict(sorted(work.counts.items())), figures, work.warnings())


class _Checking:
    """One call of ``judge_safety``."""

    def __init__(self, source: TrajectoryFile, config: JudgeConfig) -> None:
        self.source, self.config = source, config
        self.judge = SafetyJudge(**config.judge_options)
        self.rubric = load_rubric(self.judge.rubric)
        _refuse_rewards(self.rubric)
        if config.retry_missing and "safety_status" not in source.names:
            raise UsageError(f"--retry-missing on {source.where}, which was not checked for safety: leave it out.")
        self.scenarios = Scenarios(source, config.environment_options)
        self.calls = calls_of(config, None)
        self.counts: Counter[str] = Counter()
        self._iteration = iteration_of(source)

    async def block(self, dialogues: Sequence[list[Row]]) -> list[Row]:
        """The rows of ``dialogues`` with the columns of the check."""
        gate = asyncio.Semaphore(self.config.concurrency)
        async with self.calls:
            checked = await asyncio.gather(*(self._dialogue(rows, gate) for rows in dialogues))
        return [row for rows in checked for row in rows]

    async def _dialogue(self, rows: Sequence[Row], gate: asyncio.Semaphore) -> list[Row]:
        scenario = self.scenarios.find(rows[0])
        if not self.judge.checks(scenario):
            return [{**_keys(row), **dict.fromkeys(WRITES)} for row in rows]
        crisis, dialogue, checked = crisis_of(scenario), list[Message](), list[Row]()
        async with gate:
            for row in rows:
                dialogue += [Message.from_row(message) for message in row["messages"] or ()]
                dialogue.append(Message("assistant", row["reply"] or ""))
                columns = await self._columns(scenario, dialogue, row)
                checked.append({**_keys(row), **dict.fromkeys(WRITES), **columns, "crisis": crisis})
        return checked

    async def _columns(self, scenario: Scenario, dialogue: Sequence[Message], row: Row) -> Mapping[str, Any]:
        if row["reply"] is None:
            return {}
        if self.config.retry_missing and row["safety_status"] in KEPT:
            return {name: row[name] for name in WRITES}
        return _columns(await self._verdict(scenario, dialogue, row))

    async def _verdict(self, scenario: Scenario, dialogue: Sequence[Message], row: Row) -> TurnVerdict:
        if row.get("status") == "error":
            return missing(FAILED_DIALOGUE)
        seed = seed_for(self.config.seed, self._iteration, row["group_id"], row["sample"], row["turn"], NAME)
        call = self.judge.grade(scenario, dialogue, row["turn"], seed)
        return await ask(call, self.rubric, timeout_seconds=self.config.call_timeout_seconds)

    def count(self, table: pa.Table) -> None:
        statuses = table["safety_status"].to_pylist()
        self.counts.update(f"checks_{status}" if status else "turns_not_checked" for status in statuses)

    def record(self) -> StageRecord:
        return StageRecord(
            "judge",
            options=self.config.semantic_values(),
            inputs=self.source.input_files,
            seed=self.config.seed,
            counts=dict(sorted(self.counts.items())),
            details={"judge_made_from": self.judge.provenance, "environments_made_from": self.scenarios.made_from},
            warnings=self.warnings(),
        )

    @property
    def _checks(self) -> int:
        return sum(count for name, count in self.counts.items() if name.startswith("checks_"))

    def warnings(self) -> tuple[str, ...]:
        if not self._checks:
            return ("No dialogue is about a crisis: nothing was checked (judge_options.scope all checks every one).",)
        gone = self.counts["checks_missing"]
        return (f"{gone} checks of safety are missing; they count as neither safe nor unsafe.",) if gone else ()

    def check_missing(self, output: Path) -> None:
        gone = self.counts["checks_missing"]
        if gone > self.config.max_missing * self._checks:
            raise FailureThresholdError(
                f"{gone} of {self._checks} checks are missing: more than --max-missing {self.config.max_missing:g}."
                f" '{output}' was written; see its column 'safety_error' (dialrl inspect)."
            )


def _keys(row: Row) -> Row:
    return {key: row[key] for key in KEYS}


def _columns(verdict: TurnVerdict) -> Mapping[str, Any]:
    if verdict.status == "missing":
        return {"safety": None, "safety_level": None, "safety_status": "missing", "safety_error": verdict.error}
    grades = [
        {**vars(grade), **{name: _words(getattr(grade, name)) for name in ("evidence", "reasoning")}}
        for grade in verdict.grades
    ]
    worst = min(grade.level for grade in verdict.grades)
    return {"safety": grades, "safety_level": worst, "safety_status": verdict.status, "safety_error": None}


def _words(text: str | None) -> str | None:
    return None if text is None else storable(text)


def _refuse_rewards(rubric: Rubric) -> None:
    above = [part.name for part in rubric.indicators if max(level.level for level in part.levels) != 0]
    if above:
        raise UsageError(
            f"The rubric '{rubric.name}' is none of safety: the highest level of {', '.join(above)} is not 0. Levels of"
            " safety are 0 (nothing found) and below."
        )
