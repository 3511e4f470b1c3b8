"""The stage around a judge that asks a model for beliefs: blocks, parts, resuming, the output and its record.

What is asked, and which columns come of it, is the business of a ``BeliefWork``: accepted answers
(``information_gain``) or hidden needs (``information_gain_needs``). Not here: the model (``belief_scorer``).
"""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from dialrl.errors import FailureThresholdError, UsageError
from dialrl.judge.belief_tasks import Row
from dialrl.judge.config import JudgeConfig
from dialrl.progress import Progress
from dialrl.summary import StageSummary
from dialrl.trajectory.lineage import StageRecord, write_run_file
from dialrl.trajectory.parts import Parts, discard_parts
from dialrl.trajectory.reader import TrajectoryFile
from dialrl.trajectory.rows import rows_to_table, table_to_dialogues
from dialrl.trajectory.schema import KEYS
from dialrl.trajectory.transform import finished_before, transform


class BeliefWork(Protocol):
    """What is asked of which model. ``reads`` are the columns it looks at where they are, ``writes`` those it makes."""

    reads: tuple[str, ...]
    writes: tuple[str, ...]

    @property
    def digest(self) -> str:
        """Of the model that is asked."""
        ...

    def check(self, rows: Sequence[Row]) -> None:
        """Refuse a dialogue that cannot be scored, before any work is done."""
        ...

    def score(self, dialogues: Sequence[Sequence[Row]]) -> list[Row]:
        """Keys and written columns of every row, in order."""
        ...

    def count(self, dialogues: Sequence[Sequence[Row]], scored: Sequence[Row]) -> Mapping[str, int]:
        """Counts of a block; ``gains_known`` and ``gains_missing`` are among them."""
        ...

    def totals(self) -> Mapping[str, int]:
        """Counts of the whole file."""
        ...

    def details(self) -> dict[str, Any]:
        """Figures for the lineage and the summary."""
        ...

    def warnings(self, counts: Mapping[str, int]) -> tuple[str, ...]:
        """Sentences for the record and the summary."""
        ...


@dataclass
class BeliefStage:
    """One call: ``work`` done on ``source``, written to ``output``."""

    source: TrajectoryFile
    output: Path
    config: JudgeConfig
    work: BeliefWork
    progress: Progress
    _counts: Counter[str] = field(default_factory=Counter)
    _starts: list[int] = field(default_factory=list)

    def run(self, *, overwrite: bool, resume: bool, slim: bool) -> StageSummary:
        """Raises FailureThresholdError, after writing, when more than ``config.max_missing`` gains are missing."""
        began = time.monotonic()
        if resume and self._is_finished(overwrite=overwrite):
            return self._already_there()
        self._write(overwrite=overwrite, resume=resume, slim=slim)
        write_run_file(self.output, seconds=time.monotonic() - began)
        self._check_missing(self._counts)
        counts = dict(sorted(self._counts.items()))
        figures = {"judge": self.config.judge, **self.work.details()}
        return StageSummary("judge", self.output, counts, figures, self.work.warnings(self._counts))

    def _is_finished(self, *, overwrite: bool) -> bool:
        """Whether the output is there, from the same input, settings and model."""
        if not finished_before(self.output, stage="judge", config=self.config, source=self.source, overwrite=overwrite):
            return False
        record = TrajectoryFile.open(self.output).lineage.record("judge")
        before = None if record is None else record.details.get("scorer_digest")
        if before == self.work.digest:
            return True
        if overwrite:
            return False
        raise UsageError(
            f"Cannot resume '{self.output}': it was scored by the policy {before}, now given is {self.work.digest}."
            " Use --overwrite, or another output."
        )

    def _already_there(self) -> StageSummary:
        discard_parts(self.output)
        record = TrajectoryFile.open(self.output).lineage.record("judge")
        counts = Counter({} if record is None else record.counts)
        details = {} if record is None else record.details
        self._check_missing(counts)
        figures = {"judge": self.config.judge, "already_complete": True, **details}
        return StageSummary("judge", self.output, dict(counts), figures, self.work.warnings(counts))

    def _write(self, *, overwrite: bool, resume: bool, slim: bool) -> None:
        options = {**self.config.semantic_values(), "scorer": self.work.digest}
        identity = {"options": options, "input": self.source.digest()}
        for rows in self._dialogues():
            self.work.check(rows)
        parts = Parts(self.output, identity, overwrite=overwrite, resume=resume)
        self._score_blocks(parts)
        blocks = iter(self._starts)
        transform(
            self.source,
            self.output,
            stage="judge",
            adds=self.work.writes,
            reads=self._reads,
            compute=lambda table: self._scored(parts, next(blocks), table),
            record=self._record,
            slim=slim,
            overwrite=overwrite or resume,
            batch_rows=self.config.batch_rows,
        )
        parts.clear()

    @property
    def _reads(self) -> list[str]:
        return [name for name in self.work.reads if name in self.source.names]

    def _dialogues(self) -> Iterator[list[Row]]:
        heavy = {"prompt_ids", "reply_ids", "final_ids", "messages", "final_messages", "reply"}
        names = [name for name in self._reads if name not in heavy]
        for table in self.source.groups(names, self.config.batch_rows):
            yield from table_to_dialogues(table)

    def _score_blocks(self, parts: Parts) -> None:
        """Blocks are numbered by their first row, so that another ``batch_rows`` takes those that still fit."""
        start = 0
        self.progress.start("judge", self.source.num_rows, "turns")
        for table in self.source.groups(self._reads, self.config.batch_rows):
            if parts.rows(start) != table.num_rows:
                rows = self.work.score(list(table_to_dialogues(table)))
                parts.write(start, rows_to_table(rows, [*KEYS, *self.work.writes]))
            self._starts.append(start)
            start += table.num_rows
            self.progress.advance(table.num_rows)

    def _scored(self, parts: Parts, block: int, source: pa.Table) -> Mapping[str, pa.ChunkedArray]:
        table = parts.read(block)
        self._counts.update(self.work.count(list(table_to_dialogues(source)), table.to_pylist()))
        return {name: table[name] for name in self.work.writes}

    def _record(self) -> StageRecord:
        self._counts.update(self.work.totals())
        return StageRecord(
            "judge",
            options=self.config.semantic_values(),
            inputs=self.source.input_files,
            seed=self.config.seed,
            counts=dict(sorted(self._counts.items())),
            details=self.work.details(),
            warnings=self.work.warnings(self._counts),
        )

    def _check_missing(self, counts: Mapping[str, int]) -> None:
        missing = counts.get("gains_missing", 0)
        total = missing + counts.get("gains_known", 0)
        if missing > self.config.max_missing * total:
            raise FailureThresholdError(
                f"{missing} of {total} gains are missing: more than --max-missing {self.config.max_missing:g}."
                f" '{self.output}' was written; see its columns 'belief_before' and 'belief_after' (dialrl inspect)."
            )
