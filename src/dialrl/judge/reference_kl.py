"""``dialrl judge --kind reference-kl``: how far each turn is from a frozen reference policy (column ``kl``).

Grades of other judges stay, so it can stand beside them; the channel ``kl`` of ``returns`` reads the column. Finished
blocks are kept, so a killed run continues. Source: docs/credit.md 1. Not here: the forward (``reference_scorer``).
"""

import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from dialrl.errors import NumericalError, UsageError
from dialrl.judge.blocks import Blocks, Row
from dialrl.judge.config import JudgeConfig
from dialrl.judge.reference_scorer import ReferenceScorer
from dialrl.judge.reference_tasks import dialogue_sequences
from dialrl.progress import SILENT, Progress
from dialrl.summary import StageSummary
from dialrl.trajectory.lineage import StageRecord, write_run_file
from dialrl.trajectory.parts import discard_parts
from dialrl.trajectory.reader import TrajectoryFile
from dialrl.trajectory.rows import row_name
from dialrl.trajectory.sampling import rollout_details, sampling_temperature
from dialrl.trajectory.schema import KEYS
from dialrl.trajectory.transform import finished_before

NAME = "reference-kl"
NEEDS = ("segment", "prompt_ids", "reply_ids", "reply_logprobs", "reply")
WRITES = ("kl",)


def judge_reference_kl(
    inputs: Path | Sequence[Path],
    output: Path,
    config: JudgeConfig,
    *,
    overwrite: bool = False,
    resume: bool = False,
    slim: bool = False,
    progress: Progress = SILENT,
) -> StageSummary:
    """Write ``kl`` of every turn of ``inputs`` to ``config.reference`` into ``output``.

    Raises UsageError without a reference, InputError for dialogues without ids and log-probs or drawn from a truncated
    distribution, NumericalError where the reference gives no finite log-prob.
    """
    if config.reference is None:
        raise UsageError("The judge reference-kl compares with a frozen policy: name it with --reference DIRECTORY.")
    source = TrajectoryFile.open(inputs, needs=NEEDS)
    details = rollout_details(source.lineage)
    temperature = sampling_temperature(details, given=config.reference_options.temperature, where=source.where)
    began = time.monotonic()
    work = _Comparing(source, config, ReferenceScorer(config.reference, config.reference_options), temperature)
    if resume and work.is_finished(output, overwrite=overwrite):
        discard_parts(output)
        record = TrajectoryFile.open(output).lineage.record("judge")
        counts = {} if record is None else dict(record.counts)
        return StageSummary("judge", output, counts, {"already_complete": True})
    blocks = Blocks(
        source, output, config, reads=(*NEEDS, "status"), writes=WRITES, made_from=work.made_from,
        overwrite=overwrite, resume=resume,
    )  # fmt: skip
    blocks.compute(work.rows_of, progress)
    blocks.publish(work.count, work.record, slim=slim)
    write_run_file(output, seconds=time.monotonic() - began)
    return StageSummary("judge", output, dict(sorted(work.counts.items())), work.figures())


@dataclass
class _Comparing:
    """One call of ``judge_reference_kl``."""

    source: TrajectoryFile
    config: JudgeConfig
    scorer: ReferenceScorer
    temperature: float
    counts: Counter[str] = field(default_factory=Counter)
    _sums: list[float] = field(default_factory=list)

    @property
    def made_from(self) -> dict[str, str]:
        return {"reference_digest": self.scorer.digest}

    def is_finished(self, output: Path, *, overwrite: bool) -> bool:
        """Whether the output is there, from the same input, settings and reference."""
        if not finished_before(output, stage="judge", config=self.config, source=self.source, overwrite=overwrite):
            return False
        record = TrajectoryFile.open(output).lineage.record("judge")
        before = None if record is None else record.details.get("reference_digest")
        if before == self.scorer.digest or overwrite:
            return before == self.scorer.digest
        raise UsageError(
            f"Cannot resume '{output}': it was compared with the reference {before}, now given is {self.scorer.digest}."
            " Use --overwrite, or another output."
        )

    def rows_of(self, dialogues: Sequence[list[Row]]) -> list[Row]:
        """Keys and kl of the rows of ``dialogues``; null where nothing was sampled by a good dialogue."""
        vocabulary, limit = self.scorer.vocabulary, self.scorer.limit_tokens
        made = [
            (rows, sequence)
            for rows in dialogues
            for sequence in dialogue_sequences(rows, vocabulary=vocabulary, limit_tokens=limit)
        ]
        scores = self.scorer.score([sequence.tokens for _, sequence in made], self.temperature)
        known: dict[int, float] = {}
        for (rows, sequence), logprobs in zip(made, scores, strict=True):
            for number, value in sequence.kl(logprobs).items():
                _check(rows[number], value)
                known[id(rows[number])] = value
        return [{**{key: row[key] for key in KEYS}, "kl": known.get(id(row))} for rows in dialogues for row in rows]

    def count(self, table: pa.Table) -> None:
        values = [value for value in table["kl"].to_pylist() if value is not None]
        self.counts.update(turns_compared=len(values), turns_without_reply=table.num_rows - len(values))
        self._sums += values

    def record(self) -> StageRecord:
        return StageRecord(
            "judge",
            options=self.config.semantic_values(),
            inputs=self.source.input_files,
            seed=self.config.seed,
            counts=dict(sorted(self.counts.items())),
            details={**self.made_from, "temperature": self.temperature},
        )

    def figures(self) -> dict[str, Any]:
        mean = math.fsum(self._sums) / len(self._sums) if self._sums else None
        return {
            "judge": NAME, "reference_digest": self.scorer.digest, "mean_kl_per_turn": mean,
            "temperature": self.temperature, "layout": self.scorer.layout,
        }  # fmt: skip


def _check(row: Row, value: float) -> None:
    if not math.isfinite(value):
        raise NumericalError(
            f"{row_name(row)}: the reference gives a sampled token no finite log-prob. Is it a policy of the same"
            " family, and is its precision enough? Nothing was written."
        )
