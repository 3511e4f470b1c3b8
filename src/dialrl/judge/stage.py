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
from dialrl.endpoint.calls import UsesModels, calls_of, connect
from dialrl.engine.serving.opening import serve_named
from dialrl.errors import FailureThresholdError
from dialrl.judge.asking import Assessment, ask, ask_deficit, missing
from dialrl.judge.base import ROLE, Judge, TurnVerdict
from dialrl.judge.blocks import Blocks
from dialrl.judge.config import JudgeConfig
from dialrl.judge.earlier import check_retry, is_finished, iteration_of, refuse_other_judge
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
from dialrl.trajectory.schema import KEYS
from dialrl.trajectory.transform import transform

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
    if resume and is_finished(
        output, config, source, lambda: _made_from(open_judge(config.judge, config.judge_options)), overwrite=overwrite
    ):
        return _already_there(output, config)
    began = time.monotonic()
    called: dict[str, Any] = {}
    is_judged = "judge_status" in source.names
    check_retry(source, config, is_judged=is_judged)
    passing_on = is_judged and not config.regrade and not config.retry_missing
    if passing_on:
        refuse_other_judge(source, config)
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


class _Grading:
    """One call of ``judge_dialogues`` that asks a judge."""

    def __init__(self, source: TrajectoryFile, output: Path, config: JudgeConfig, progress: Progress) -> None:
        self.source, self.output, self.config, self.progress = source, output, config, progress
        self.judge: Judge = open_judge(config.judge, config.judge_options)
        self.rubric: Rubric = load_rubric(self.judge.rubric)
        self.counts: Counter[str] = Counter()
        self.scenarios = Scenarios(source, config.environment_options)
        # Tokens of the judge's calls go to those of the turn; a judge that asks no model leaves the column alone.
        self._writes = (*WRITES, "usage") if isinstance(self.judge, UsesModels) else WRITES
        self._reads = (*READS, "usage", *(JUDGE_COLUMNS if config.retry_missing else ()))
        self._iteration = iteration_of(source)

    def run(self, *, overwrite: bool, resume: bool, slim: bool) -> Counter[str]:
        self.scenarios.open_all(self.source)
        blocks = Blocks(
            self.source,
            self.output,
            self.config,
            reads=self._reads,
            writes=self._writes,
            made_from=_made_from(self.judge),
            overwrite=overwrite,
            resume=resume,
        )
        serve_named(self.config.endpoints)
        self.calls = calls_of(self.config, blocks.journal_path)
        connect(self.calls, self.judge)
        blocks.compute(lambda dialogues: run_async(self._grade_block(dialogues)), self.progress)
        blocks.publish(lambda table: self.counts.update(_statuses(table)), self._record, slim=slim)
        return self.counts

    def _record(self) -> StageRecord:
        return _record(
            self.source,
            self.config,
            self.counts,
            passed_on=False,
            judge_made_from=_made_from(self.judge),
            environments_made_from=self.scenarios.made_from,
        )

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
        scenario = self.scenarios.find(first)
        async with gate:
            call = self.judge.assess(scenario, opening, seed)
            return await ask_deficit(call, self.rubric, timeout_seconds=self.config.call_timeout_seconds)

    async def _grade_dialogue(self, rows: Sequence[Row], assessed: Assessment, gate: asyncio.Semaphore) -> list[Row]:
        if assessed.deficit is None:
            return _ungraded(rows, None, f"no initial deficit: {assessed.error}")
        if rows[0].get("status") == "error":
            return _ungraded(rows, assessed.deficit, FAILED_DIALOGUE)
        grader = DialogueGrader(self.rubric, assessed.deficit, self.config.stop)
        scenario, dialogue, graded = self.scenarios.find(rows[0]), list[Message](), list[Row]()
        async with gate:
            for row in rows:
                dialogue += [Message.from_row(message) for message in row["messages"] or ()]
                dialogue.append(Message("assistant", row["reply"] or ""))
                verdict = await self._verdict(scenario, dialogue, row)
                keys = {key: row[key] for key in KEYS}
                graded.append({**keys, **grader.add(verdict, turn=row["turn"]), "usage": self._usage(row, verdict)})
        with_stop_turn(graded, grader.stop_turn)
        graded[-1]["outcome"] = self._outcome(rows[-1], grader)
        return graded

    def _outcome(self, last: Row, grader: DialogueGrader) -> float | None:
        return grader.outcome(
            self.scenarios.environment(last["environment"]), last.get("end_reason"), last.get("outcome")
        )

    def _usage(self, row: Row, verdict: TurnVerdict) -> list[Row]:
        """Tokens of all calls made for the turn, those of a judgement that this one replaces left out."""
        others = row.get("usage") or []
        if not self._is_kept(row):
            others = [used for used in others if used["role"] != ROLE]
        return [*others, *map(vars, verdict.usage)]

    def _is_kept(self, row: Row) -> bool:
        return self.config.retry_missing and row["judge_status"] in ("ok", "repaired")

    async def _verdict(self, scenario: Scenario, dialogue: Sequence[Message], row: Row) -> TurnVerdict:
        if row["reply"] is None:
            return missing(NO_REPLY)
        if self._is_kept(row):
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
    graded = [
        {**{key: row[key] for key in KEYS}, "usage": row.get("usage"), **ungraded(deficit, error)} for row in rows
    ]
    graded[-1]["outcome"] = rows[-1].get("outcome")
    return graded


def _already_there(output: Path, config: JudgeConfig) -> StageSummary:
    discard_parts(output)
    record = TrajectoryFile.open(output).lineage.record("judge")
    counts = Counter({} if record is None else record.counts)
    _check_missing(output, counts, config)
    return StageSummary("judge", output, dict(counts), {"already_complete": True}, _warnings(counts))


def _made_from(judge: Judge) -> dict[str, Any]:
    """Digests of the judge's prompts and rubric, where it has any."""
    return dict(getattr(judge, "provenance", None) or {})


def _record(
    source: TrajectoryFile, config: JudgeConfig, counts: Counter[str], *, passed_on: bool, **details: Any
) -> StageRecord:
    return StageRecord(
        "judge",
        options=config.semantic_values(),
        inputs=source.input_files,
        seed=config.seed,
        counts=dict(sorted(counts.items())),
        details={"passed_on": passed_on, **{name: made for name, made in details.items() if made}},
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
