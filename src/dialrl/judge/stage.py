"""``dialrl judge``: grades every turn of a trajectory file, dialogue by dialogue, and replays the stop rules.

A judgement that fails is a row with status "missing"; a failed dialogue's turns are missing too. Finished blocks are
kept, so a killed run continues. Not here: a judge, and the arithmetic of grades (``grading``, ``dialrl.state``).
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
from dialrl.environment.base import Environment
from dialrl.environment.registry import open_environment
from dialrl.errors import FailureThresholdError, UsageError
from dialrl.judge.asking import Assessment, ask, ask_deficit, missing
from dialrl.judge.base import Judge, TurnVerdict
from dialrl.judge.config import JudgeConfig
from dialrl.judge.grading import (
    FAILED_DIALOGUE,
    JUDGE_COLUMNS,
    NO_REPLY,
    DialogueGrader,
    ungraded,
    verdict_of,
    with_stop_turn,
)
from dialrl.judge.registry import open_judge
from dialrl.progress import SILENT, Progress
from dialrl.scenario.card import Scenario
from dialrl.scenario.message import Message
from dialrl.seeds import seed_for
from dialrl.state.rubric import Rubric, load_rubric
from dialrl.summary import StageSummary
from dialrl.trajectory.lineage import StageRecord, write_run_file
from dialrl.trajectory.parts import Parts, discard_parts
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
        return _already_there(output, config)
    began = time.monotonic()
    called: dict[str, Any] = {}
    is_judged = "judge_status" in source.names
    _check_retry(source, config, is_judged=is_judged)
    passing_on = is_judged and not config.regrade and not config.retry_missing
    if passing_on:
        _refuse_other_judge(source, config)
        counts = _pass_on(source, output, config, overwrite=overwrite or resume, slim=slim, progress=progress)
    else:
        grading = _Grading(source, output, config, progress)
        counts = grading.run(overwrite=overwrite, resume=resume, slim=slim)
        called = grading.calls.ledger.figures()
    write_run_file(output, seconds=time.monotonic() - began, calls=called)
    _check_missing(output, counts, config)
    return _summary(output, counts, config, passed_on=passing_on, called=called)


def _pass_on(
    source: TrajectoryFile, output: Path, config: JudgeConfig, *, overwrite: bool, slim: bool, progress: Progress
) -> Counter[str]:
    """Copy the grades of a live-graded file."""
    counts: Counter[str] = Counter()

    def compute(table: pa.Table) -> Mapping[str, pa.Array]:
        counts.update(_statuses(table))
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


def _statuses(table: pa.Table) -> list[str]:
    return [f"judgements_{status or 'missing'}" for status in table["judge_status"].to_pylist()]


def _refuse_other_judge(source: TrajectoryFile, config: JudgeConfig) -> None:
    """Raise UsageError when settings given explicitly are not those the grades in the file were made with."""
    before, where = _graded_with(source)
    asked = config.semantic_values()
    keys = [key for key in ("judge", "judge_options", "stop") if key in config.model_fields_set]
    differing = [f"{key}: {before.get(key)} -> {asked[key]}" for key in keys if before.get(key) != asked[key]]
    if differing:
        raise UsageError(
            f"{source.where} was graded {where}, by another judge: {'; '.join(differing)}. Grade it again with"
            " --regrade, or leave these settings out to pass its grades on."
        )


def _graded_with(source: TrajectoryFile) -> tuple[Mapping[str, Any], str]:
    """The settings behind the grades in a judged file, and where they were made."""
    judged, rolled_out = source.lineage.record("judge"), source.lineage.record("rollout")
    if judged is not None:
        return judged.options, "by an earlier judge command"
    if rolled_out is not None and rolled_out.options.get("grading") == "live":
        return rolled_out.options, "in the rollout"
    return {}, "before it was imported"


def _check_retry(source: TrajectoryFile, config: JudgeConfig, *, is_judged: bool) -> None:
    """Raise UsageError where --retry-missing has nothing to go on, or would mix two judges."""
    if not config.retry_missing:
        return
    if config.regrade or not is_judged:
        fault = "with --regrade" if config.regrade else f"on {source.where}, which holds no judgements"
        raise UsageError(f"--retry-missing {fault}: it completes a judged file. Give the output of dialrl judge.")
    record = source.lineage.record("judge")
    before = {} if record is None else record.options
    asked = config.semantic_values()
    differing = [
        f"{key}: {before[key]} -> {asked[key]}"
        for key in ("judge", "judge_options", "stop")
        if key in before and before[key] != asked[key]
    ]
    if differing:
        raise UsageError(
            f"{source.where} was graded by another judge: {'; '.join(differing)}. Give the same judge, options and"
            " stop rules to complete it, or grade all of it again with --regrade."
        )


class _Grading:
    """One call of ``judge_dialogues`` that asks a judge."""

    def __init__(self, source: TrajectoryFile, output: Path, config: JudgeConfig, progress: Progress) -> None:
        self.source, self.output, self.config, self.progress = source, output, config, progress
        self.judge: Judge = open_judge(config.judge, config.judge_options)
        self.rubric: Rubric = load_rubric(self.judge.rubric)
        self.counts: Counter[str] = Counter()
        self._environments: dict[str, Environment] = {}
        reads = (*READS, *JUDGE_COLUMNS) if config.retry_missing else READS
        self._reads = [name for name in reads if name in source.names]
        self._iteration = _iteration(source)
        self._starts: list[int] = []

    def run(self, *, overwrite: bool, resume: bool, slim: bool) -> Counter[str]:
        identity = {"options": self.config.semantic_values(), "input": self.source.digest()}
        parts = Parts(self.output, identity, overwrite=overwrite, resume=resume)
        self.calls = calls_of(self.config, parts.journal_path)
        connect(self.calls, self.judge)
        self._grade_blocks(parts)
        blocks = iter(self._starts)
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
        """Blocks are numbered by their first row, so that another ``batch_rows`` takes those that still fit."""
        start = 0
        self.progress.start("judge", self.source.num_rows, "turns")
        for table in self.source.groups(self._reads, self.config.batch_rows):
            if parts.rows(start) != table.num_rows:
                rows = run_async(self._grade_block(list(table_to_dialogues(table))))
                parts.write(start, rows_to_table(rows, [*KEYS, *WRITES]))
            self._starts.append(start)
            start += table.num_rows
            self.progress.advance(table.num_rows)

    def _graded(self, parts: Parts, block: int) -> Mapping[str, pa.ChunkedArray]:
        table = parts.read(block)
        self.counts.update(_statuses(table))
        return {name: table[name] for name in WRITES}

    async def _grade_block(self, dialogues: Sequence[list[Row]]) -> list[Row]:
        async with self.calls:
            return await self._graded_rows(dialogues)

    async def _graded_rows(self, dialogues: Sequence[list[Row]]) -> list[Row]:
        gate = asyncio.Semaphore(self.config.concurrency)
        firsts = _first_of_groups(dialogues)
        assessed = await asyncio.gather(*(self._assess(first, gate) for first in firsts.values()))
        by_group = dict(zip(firsts, assessed, strict=True))
        graded = await asyncio.gather(
            *(self._grade_dialogue(rows, by_group[rows[0]["group_id"]], gate) for rows in dialogues)
        )
        return [row for rows in graded for row in rows]

    async def _assess(self, first: Row, gate: asyncio.Semaphore) -> Assessment:
        """P_0: one assessment a group; the seed names the group."""
        if self.config.retry_missing and first["deficit"] is not None:
            return Assessment(tuple(first["deficit"]))
        opening = [Message.from_row(message) for message in first["messages"] or ()]
        seed = seed_for(self.config.seed, self._iteration, first["group_id"], 0, 0, "assess")
        scenario = self._scenario(first)
        async with gate:
            call = self.judge.assess(scenario, opening, seed)
            return await ask_deficit(call, self.rubric, timeout_seconds=self.config.call_timeout_seconds)

    def _scenario(self, row: Row) -> Scenario:
        return self._environment(row["environment"]).find(row["scenario_id"])

    def _environment(self, name: str) -> Environment:
        if name not in self._environments:
            self._environments[name] = open_environment(name, self.config.environment_options)
        return self._environments[name]

    async def _grade_dialogue(self, rows: Sequence[Row], assessed: Assessment, gate: asyncio.Semaphore) -> list[Row]:
        if assessed.deficit is None:
            return _ungraded(rows, None, f"no initial deficit: {assessed.error}")
        if rows[0].get("status") == "error":
            return _ungraded(rows, assessed.deficit, FAILED_DIALOGUE)
        grader = DialogueGrader(self.rubric, assessed.deficit, self.config.stop)
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
        return grader.outcome(self._environment(last["environment"]), last.get("end_reason"), last.get("outcome"))

    async def _verdict(self, scenario: Scenario, dialogue: Sequence[Message], row: Row) -> TurnVerdict:
        if row["reply"] is None:
            return missing(NO_REPLY)
        if self.config.retry_missing and row["judge_status"] in ("ok", "repaired"):
            return verdict_of(row)
        seed = seed_for(self.config.seed, self._iteration, row["group_id"], row["sample"], row["turn"], "judge")
        call = self.judge.grade(scenario, dialogue, row["turn"], seed)
        return await ask(call, self.rubric, timeout_seconds=self.config.call_timeout_seconds)


def _first_of_groups(dialogues: Sequence[list[Row]]) -> dict[str, Row]:
    """First row of a dialogue of each group: of one that has its opening, since a failed one may lack it."""
    firsts: dict[str, Row] = {}
    for rows in dialogues:
        held = firsts.setdefault(rows[0]["group_id"], rows[0])
        if not held["messages"]:
            firsts[rows[0]["group_id"]] = rows[0]
    return firsts


def _ungraded(rows: Sequence[Row], deficit: Sequence[float] | None, error: str) -> list[Row]:
    graded = [{**{key: row[key] for key in KEYS}, **ungraded(deficit, error)} for row in rows]
    graded[-1]["outcome"] = rows[-1].get("outcome")
    return graded


def _iteration(source: TrajectoryFile) -> int:
    """The rollout's place in its run, which is part of every seed; 0 for dialogues from elsewhere."""
    record = source.lineage.record("rollout")
    return 0 if record is None else int(record.options.get("iteration", 0))


def _already_there(output: Path, config: JudgeConfig) -> StageSummary:
    discard_parts(output)
    record = TrajectoryFile.open(output).lineage.record("judge")
    counts = Counter({} if record is None else record.counts)
    _check_missing(output, counts, config)
    return StageSummary("judge", output, dict(counts), {"already_complete": True}, _warnings(counts))


def _record(source: TrajectoryFile, config: JudgeConfig, counts: Counter[str], *, passed_on: bool) -> StageRecord:
    return StageRecord(
        "judge",
        options=config.semantic_values(),
        inputs=source.input_files,
        seed=config.seed,
        counts=dict(sorted(counts.items())),
        details={"passed_on": passed_on},
        warnings=_warnings(counts),
    )


def _warnings(counts: Counter[str]) -> tuple[str, ...]:
    missing_judgements = counts["judgements_missing"]
    if not missing_judgements:
        return ()
    return (f"{missing_judgements} judgements are missing; they stay null and train nothing.",)


def _check_missing(output: Path, counts: Counter[str], config: JudgeConfig) -> None:
    total = sum(counts.values())
    if counts["judgements_missing"] > config.max_missing * total:
        raise FailureThresholdError(
            f"{counts['judgements_missing']} of {total} judgements are missing: more than --max-missing"
            f" {config.max_missing:g}. '{output}' was written; see its column 'judge_error' (dialrl inspect)."
        )


def _summary(
    output: Path, counts: Counter[str], config: JudgeConfig, *, passed_on: bool, called: Mapping[str, Any]
) -> StageSummary:
    return StageSummary(
        "judge",
        output,
        counts=dict(sorted(counts.items())),
        figures={
            "judge": config.judge,
            "passed_on_from_rollout": passed_on,
            **({"calls": dict(called)} if called else {}),
        },
        warnings=_warnings(counts),
    )
