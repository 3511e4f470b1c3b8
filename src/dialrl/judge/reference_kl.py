"""``dialrl judge --kind reference-kl``: how far each turn is from a frozen reference policy (column ``kl``).

Grades of other judges stay, so it can stand beside them; the channel ``kl`` of ``returns`` reads the column. Source:
docs/credit.md 1. Not here: blocks and files (``scoring_stage``), the forward (``reference_scorer``).
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from dialrl.errors import NumericalError, UsageError
from dialrl.judge.blocks import Row
from dialrl.judge.config import JudgeConfig
from dialrl.judge.reference_scorer import ReferenceScorer
from dialrl.judge.reference_tasks import dialogue_sequences
from dialrl.judge.scoring_stage import score_file
from dialrl.progress import SILENT, Progress
from dialrl.summary import StageSummary
from dialrl.trajectory.reader import TrajectoryFile
from dialrl.trajectory.rows import row_name
from dialrl.trajectory.sampling import sampling_temperature
from dialrl.trajectory.schema import KEYS

NEEDS = ("segment", "prompt_ids", "reply_ids", "reply_logprobs", "reply")


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
    temperature = sampling_temperature(source, given=config.reference_options.temperature)
    work = _Comparing(ReferenceScorer(config.reference, config.reference_options), temperature)
    return score_file(
        work, source, output, config, overwrite=overwrite, resume=resume, slim=slim, progress=progress
    )  # fmt: skip


@dataclass
class _Comparing:
    """kl of every turn that was sampled by a good dialogue; null on the others."""

    scorer: ReferenceScorer
    temperature: float
    reads: tuple[str, ...] = (*NEEDS, "status")
    writes: tuple[str, ...] = ("kl",)
    _counts: Counter[str] = field(default_factory=Counter)
    _sums: list[float] = field(default_factory=list)

    @property
    def made_from(self) -> dict[str, str]:
        return {"reference_digest": self.scorer.digest}

    def prepare(self) -> None:
        """Nothing of the whole file is needed."""

    def rows_of(self, dialogues: Sequence[list[Row]]) -> list[Row]:
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
        self._counts.update(turns_compared=len(values), turns_without_reply=table.num_rows - len(values))
        self._sums += values

    def counts(self) -> Mapping[str, int]:
        return self._counts

    def details(self) -> dict[str, Any]:
        return {"temperature": self.temperature}

    def figures(self) -> dict[str, Any]:
        mean = math.fsum(self._sums) / len(self._sums) if self._sums else None
        return {
            **self.made_from, "mean_kl_per_turn": mean, "temperature": self.temperature, "layout": self.scorer.layout
        }  # fmt: skip


def _check(row: Row, value: float) -> None:
    if not math.isfinite(value):
        raise NumericalError(
            f"{row_name(row)}: the reference gives a sampled token no finite log-prob. Is it a policy of the same"
            " family, and is its precision enough? Nothing was written."
        )
