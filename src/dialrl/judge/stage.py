"""``dialrl judge``: grades every turn of a trajectory file, dialogue by dialogue, and replays the stop rules.

A judgement that fails is a row with status "missing"; a failed dialogue's turns are missing too. Finished blocks are
kept, so a killed run continues. Not here: a judge, and the arithmetic of grades (``grading``, ``dialrl.state``).
"""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from dialrl.concurrency import run_async
from dialrl.environment.base import Environment
from dialrl.environment.registry import open_environment
from dialrl.errors import FailureThresholdError
from dialrl.judge.asking import ask, missing
from dialrl.judge.base import Judge, TurnVerdict
from dialrl.judge.config import JudgeConfig
from dialrl.judge.grading import JUDGE_COLUMNS, DialogueGrader, with_stop_turn
from dialrl.judge.registry import open_judge
from dialrl.progress import SILENT, Progress
from dialrl.scenario.card import Scenario
from dialrl.scenario.message import Message
from dialrl.seeds import seed_for
from dialrl.state.rubric import Rubric, load_rubric
from dialrl.summary import StageSummary
from dialrl.trajectory.lineage import StageRecord, write_run_file
from dialrl.trajectory.parts import Parts
from dialrl.trajectory.reader import TrajectoryFile
from dialrl.trajectory.rows import rows_to_table, table_to_dialogues
from dialrl.trajectory.schema import KEYS
from dialrl.trajectory.transform import finished_before, transform

Row = dict[str, Any]
READS = (*KEYS, "scenario_id", "environment", "messages", "reply", "status", "end_reason", "outcome")
# The outcome may follow from the grades, as in the demo world.
WRITES = (*JUDGE_COLUMNS, "outcome")


def judge_dialogues(
    inputs: Path | Sequence[Path],
    output: Path,
    config: JudgeConfig,
    *,
    overwrite: bool = False,
    resume: bool = False,
    slim: bool = False,
    progress: Progress = SILENT,
) -> StageSummary:
    """Grade ``inputs`` into ``output``.

    Grades that the rollout made are passed on unless ``config.regrade``. Raises InputError for files that cannot be
    graded, FailureThresholdError (after writing) when more than ``config.max_missing`` of the judgements are missing.
    """
    source = TrajectoryFile.open(inputs, needs=["scenario_id", "environment", "messages", "reply"])
    if resume and finished_before(output, stage="judge", config=config, source=source, overwrite=overwrite):
        record = TrajectoryFile.open(output).lineage.record("judge")
        return StageSummary("judge", output, record.counts if record else {}, {"already_complete": True})
    began = time.monotonic()
    passing_on = "judge_status" in source.names and not config.regrade
    if passing_on:
        counts = _pass_on(source, output, config, overwrite=overwrite or resume, slim=slim, progress=progress)
    else:
        counts = _Grading(source, output, config, progress).run(overwrite=overwrite, resume=resume, slim=slim)
    write_run_file(output, seconds=time.monotonic() - began)
    _check_missing(output, counts, config)
    return _summary(output, counts, config, passed_on=passing_on)


def _pass_on(
    source: TrajectoryFile, output: Path, config: JudgeConfig, *, overwrite: bool, slim: bool, progress: Progress
) -> Counter[str]:
    """Copy the grades of a live-graded file."""
    counts: Counter[str] = Counter()

    def compute(table: pa.Table) -> Mapping[str, pa.Array]:
        counts.update(f"judgements_{status}" for status in table["judge_status"].to_pylist())
        return {name: table[name] for name in there}

    there = [name for name in JUDGE_COLUMNS if name in source.names]  # an imported file may lack some
    transform(
        source,
        output,
        stage="judge",
        adds=there,
        reads=there,
        compute=compute,
        record=lambda: _record(source, config, counts, passed_on=True),
        slim=slim,
        overwrite=overwrite,
        progress=progress,
    )
    return counts


class _Grading:
    """One call of ``judge_dialogues`` that asks a judge."""

    def __init__(self, source: TrajectoryFile, output: Path, config: JudgeConfig, progress: Progress) -> None:
        self.source, self.output, self.config, self.progress = source, output, config, progress
        self.judge: Judge = open_judge(config.judge, config.judge_options)
        self.rubric: Rubric = load_rubric(self.judge.rubric)
        self.counts: Counter[str] = Counter()
        self._environments: dict[str, Environment] = {}
        self._reads = [name for name in READS if name in source.names]

    def run(self, *, overwrite: bool, resume: bool, slim: bool) -> Counter[str]:
        identity = {"options": self.config.semantic_values(), "input": self.source.digest()}
        parts = Parts(self.output, identity, overwrite=overwrite, resume=resume)
        self._grade_blocks(parts)
        blocks = iter(sorted(parts.done()))
        transform(
            self.source,
            self.output,
            stage="judge",
            adds=WRITES,
            reads=(),
            compute=lambda table: self._graded(parts, next(blocks)),
            record=lambda: _record(self.source, self.config, self.counts, passed_on=False),
            slim=slim,
            overwrite=overwrite or resume,
            batch_rows=self.config.batch_rows,
        )
        parts.clear()
        return self.counts

    def _grade_blocks(self, parts: Parts) -> None:
        done = parts.done()
        self.progress.start("judge", self.source.num_rows, "turns")
        for number, table in enumerate(self.source.groups(self._reads, self.config.batch_rows)):
            if number not in done:
                rows = run_async(self._grade_block(list(table_to_dialogues(table))))
                parts.write(number, rows_to_table(rows, [*KEYS, *WRITES]))
            self.progress.advance(table.num_rows)

    def _graded(self, parts: Parts, block: int) -> Mapping[str, pa.ChunkedArray]:
        table = parts.read(block)
        self.counts.update(f"judgements_{status}" for status in table["judge_status"].to_pylist())
        return {name: table[name] for name in WRITES}

    async def _grade_block(self, dialogues: Sequence[list[Row]]) -> list[Row]:
        gate = asyncio.Semaphore(self.config.concurrency)
        deficits = {group: await self._assess(rows[0]) for group, rows in _first_of_groups(dialogues)}
        graded = await asyncio.gather(
            *(self._grade_dialogue(rows, deficits[rows[0]["group_id"]], gate) for rows in dialogues)
        )
        return [row for rows in graded for row in rows]

    async def _assess(self, first: Row) -> tuple[float, ...]:
        """P_0: one assessment a group; the seed names the group."""
        opening = [Message.from_row(message) for message in first["messages"] or ()]
        seed = seed_for(self.config.seed, 0, first["group_id"], 0, 0, "assess")
        return await self.judge.assess(self._scenario(first), opening, seed)

    def _scenario(self, row: Row) -> Scenario:
        return self._environment(row["environment"]).find(row["scenario_id"])

    def _environment(self, name: str) -> Environment:
        if name not in self._environments:
            self._environments[name] = open_environment(name, self.config.environment_options)
        return self._environments[name]

    async def _grade_dialogue(
        self, rows: Sequence[Row], deficit: tuple[float, ...], gate: asyncio.Semaphore
    ) -> list[Row]:
        grader = DialogueGrader(self.rubric, deficit, self.config.stop)
        scenario, dialogue, graded = self._scenario(rows[0]), list[Message](), list[Row]()
        async with gate:
            for row in rows:
                dialogue += [Message.from_row(message) for message in row["messages"] or ()]
                dialogue.append(Message("assistant", row["reply"] or ""))
                verdict = await self._verdict(scenario, dialogue, row)
                keys = {key: row[key] for key in KEYS}
                graded.append({**keys, **grader.add(verdict, turn=row["turn"])})
        with_stop_turn(graded, grader.stop_turn)
        graded[-1]["outcome"] = self._outcome(rows[-1], grader)
        return graded

    def _outcome(self, last: Row, grader: DialogueGrader) -> float | None:
        """The environment's own outcome, else the one that follows from the grades."""
        if last.get("outcome") is not None:
            return float(last["outcome"])
        return grader.outcome(self._environment(last["environment"]), last.get("end_reason"))

    async def _verdict(self, scenario: Scenario, dialogue: Sequence[Message], row: Row) -> TurnVerdict:
        if row.get("status") == "error":
            return missing("the dialogue failed in the rollout")
        seed = seed_for(self.config.seed, 0, row["group_id"], row["sample"], row["turn"], "judge")
        call = self.judge.grade(scenario, dialogue, row["turn"], seed)
        return await ask(call, self.rubric, timeout_seconds=self.config.call_timeout_seconds)


def _first_of_groups(dialogues: Sequence[list[Row]]) -> Iterator[tuple[str, list[Row]]]:
    seen: set[str] = set()
    for rows in dialogues:
        group = rows[0]["group_id"]
        if group not in seen:
            seen.add(group)
            yield group, rows


def _record(source: TrajectoryFile, config: JudgeConfig, counts: Counter[str], *, passed_on: bool) -> StageRecord:
    return StageRecord(
        "judge",
        options=config.semantic_values(),
        inputs=source.input_files,
        seed=config.seed,
        counts=dict(sorted(counts.items())),
        details={"passed_on": passed_on},
    )


def _check_missing(output: Path, counts: Counter[str], config: JudgeConfig) -> None:
    total = sum(counts.values())
    if counts["judgements_missing"] > config.max_missing * total:
        raise FailureThresholdError(
            f"{counts['judgements_missing']} of {total} judgements are missing: more than --max-missing"
            f" {config.max_missing:g}. '{output}' was written; see its column 'judge_error' (dialrl inspect)."
        )


def _summary(output: Path, counts: Counter[str], config: JudgeConfig, *, passed_on: bool) -> StageSummary:
    warnings = []
    if counts["judgements_missing"]:
        warnings.append(f"{counts['judgements_missing']} judgements are missing; they stay null and train nothing.")
    return StageSummary(
        "judge",
        output,
        counts=dict(sorted(counts.items())),
        figures={"judge": config.judge, "passed_on_from_rollout": passed_on},
        warnings=tuple(warnings),
    )
