"""``dialrl judge --kind implicit-reward``: the reward of each turn by a process reward model that saw only outcomes.

Writes ``implicit_log_ratio``, the sum over a turn's tokens of log phi - log pi_ref, and ``implicit_reward``, which the
channel ``implicit`` of ``returns`` reads. Turns after a stop, and dialogues that failed, have neither. Source: PRIME
(arXiv 2502.01456), ITPO (2603.23550). Not here: the arithmetic (``implicit_shares``), training phi (``dialrl update
--loss outcome``), blocks and files (``scoring_stage``).
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from dialrl.errors import InputError, NumericalError, UsageError
from dialrl.judge.blocks import Row
from dialrl.judge.config import JudgeConfig
from dialrl.judge.implicit_options import ImplicitOptions
from dialrl.judge.implicit_shares import shares_of_outcome, summed_scores
from dialrl.judge.reference_scorer import ReferenceScorer
from dialrl.judge.sampled_tokens import Floats, SampledSequence, sampled_sequences
from dialrl.judge.scoring_stage import score_file
from dialrl.progress import SILENT, Progress
from dialrl.summary import StageSummary
from dialrl.trajectory.outcome_labels import is_clipped, outcome_label
from dialrl.trajectory.reader import TrajectoryFile
from dialrl.trajectory.rows import row_name, table_to_dialogues
from dialrl.trajectory.schema import KEYS

NEEDS = ("segment", "prompt_ids", "reply_ids", "reply")
WRITES = ("implicit_log_ratio", "implicit_reward")


def judge_implicit_reward(
    inputs: Path | Sequence[Path],
    output: Path,
    config: JudgeConfig,
    *,
    overwrite: bool = False,
    resume: bool = False,
    slim: bool = False,
    progress: Progress = SILENT,
) -> StageSummary:
    """Score ``inputs`` with ``config.reward_model`` against ``config.reference`` into ``output``.

    Raises UsageError without either, InputError for dialogues without ids, for an outcome outside [0, 1] where no range
    is given, and for models of different vocabularies; NumericalError where a log-ratio is not finite.
    """
    if config.reward_model is None or config.reference is None:
        raise UsageError(
            "The judge implicit-reward needs --reward-model DIRECTORY (as dialrl update --loss outcome writes it) and"
            " --reference DIRECTORY, the frozen policy that it was trained against."
        )
    needs = (*NEEDS, "outcome") if config.implicit_options.normalise == "softmax" else NEEDS
    source = TrajectoryFile.open(inputs, needs=needs)
    model = ReferenceScorer(config.reward_model, config.reference_options)
    reference = ReferenceScorer(config.reference, config.reference_options)
    work = _Scoring(source, config.implicit_options, model, reference)
    return score_file(work, source, output, config, overwrite=overwrite, resume=resume, slim=slim, progress=progress)


@dataclass
class _Scoring:
    """Log-ratio and reward of every turn that counts and was sampled by a good dialogue; null on the others."""

    source: TrajectoryFile
    options: ImplicitOptions
    model: ReferenceScorer
    reference: ReferenceScorer
    reads: tuple[str, ...] = (*NEEDS, "status", "stop_turn", "outcome")
    writes: tuple[str, ...] = WRITES
    _mean_tokens: float = 0.0
    _file: Counter[str] = field(default_factory=Counter)
    _turns: Counter[str] = field(default_factory=Counter)
    _ratios: list[float] = field(default_factory=list)

    @property
    def made_from(self) -> dict[str, str]:
        return {"reward_model_digest": self.model.digest, "reference_digest": self.reference.digest}

    def prepare(self) -> None:
        """The mean length of a turn, and outcomes, are those of the whole file."""
        self._check_vocabularies()
        wanted = (*KEYS, "reply_ids", "status", "stop_turn", "outcome")
        names = [name for name in wanted if name in self.source.names]
        tokens = 0
        for table in self.source.groups(names):
            for rows in table_to_dialogues(table):
                counted = [row for row in rows if _counts(row) and row["reply_ids"] is not None]
                self._file["turns"] += len(counted)
                tokens += sum(len(row["reply_ids"]) for row in counted)
                self._look_at_outcome(rows[-1])
        self._mean_tokens = tokens / self._file["turns"] if self._file["turns"] else 0.0

    def _check_vocabularies(self) -> None:
        sizes = self.model.vocabulary, self.reference.vocabulary
        if sizes[0] != sizes[1]:
            raise InputError(
                f"The reward model has a vocabulary of {sizes[0]}, the reference one of {sizes[1]}; they must be of the"
                " same family: the reward model begins as a copy of the reference."
            )

    def _look_at_outcome(self, last: Row) -> None:
        outcome = last.get("outcome")
        self._file["dialogues"] += 1
        self._file["dialogues_without_outcome"] += outcome is None
        if outcome is not None and self.options.normalise == "softmax":
            self._label(last, outcome)
            self._file["outcomes_clipped"] += is_clipped(outcome, self.options.outcome_range)

    def _label(self, last: Row, outcome: float) -> float:
        return outcome_label(outcome, self.options.outcome_range, where=row_name(last))

    def rows_of(self, dialogues: Sequence[list[Row]]) -> list[Row]:
        made = [(rows, sequence) for rows in dialogues for sequence in self._sequences(rows)]
        tokens = [sequence.tokens for _, sequence in made]
        pairs = zip(made, self.model.score(tokens, 1.0), self.reference.score(tokens, 1.0), strict=True)
        ratios: dict[int, tuple[float, int]] = {}
        for (rows, sequence), phi_T, reference_T in pairs:
            for number, ratio_T in sequence.by_row(phi_T - reference_T).items():
                ratios[id(rows[number])] = _summed(rows[number], ratio_T), len(ratio_T)
        return [row for rows in dialogues for row in self._scored(rows, ratios)]

    def _sequences(self, rows: list[Row]) -> list[SampledSequence]:
        limits = [limit for limit in (self.model.limit_tokens, self.reference.limit_tokens) if limit is not None]
        counted = [row for row in rows if _counts(row)]
        limit = min(limits, default=None)
        return sampled_sequences(counted, vocabulary=self.model.vocabulary, limit_tokens=limit) if counted else []

    def _scored(self, rows: list[Row], ratios: Mapping[int, tuple[float, int]]) -> Iterator[Row]:
        known = [ratios[id(row)] for row in rows if id(row) in ratios]
        rewards = iter(self._rewards(rows[-1], [ratio for ratio, _ in known], [tokens for _, tokens in known]))
        for row in rows:
            there = id(row) in ratios
            yield {
                **{key: row[key] for key in KEYS},
                "implicit_log_ratio": ratios[id(row)][0] if there else None,
                "implicit_reward": next(rewards) if there else None,
            }

    def _rewards(self, last: Row, ratio_K: list[float], tokens_K: list[int]) -> Sequence[float | None]:
        options = self.options
        if options.normalise == "none":
            return [float(reward) for reward in summed_scores(ratio_K, options.beta)]
        if last["outcome"] is None:
            return [None] * len(ratio_K)
        shares = shares_of_outcome(
            ratio_K, tokens_K, self._label(last, last["outcome"]),
            beta=options.beta, temperature=options.temperature, mean_tokens=self._mean_tokens,
        )  # fmt: skip
        return [float(share) for share in shares]

    def count(self, table: pa.Table) -> None:
        ratios = [value for value in table["implicit_log_ratio"].to_pylist() if value is not None]
        rewards = table.num_rows - table["implicit_reward"].null_count
        self._turns.update(
            turns_scored=len(ratios), turns_rewarded=rewards, turns_left_out=table.num_rows - len(ratios)
        )
        self._ratios += ratios

    def counts(self) -> Mapping[str, int]:
        named = ("dialogues", "dialogues_without_outcome", "outcomes_clipped")
        return {**self._turns, **{name: self._file[name] for name in named}}

    def details(self) -> dict[str, Any]:
        return {"mean_reply_tokens": self._mean_tokens}

    def figures(self) -> dict[str, Any]:
        mean = math.fsum(self._ratios) / len(self._ratios) if self._ratios else None
        return {
            **self.made_from, "mean_log_ratio_per_turn": mean, **self.details(), "layout": self.model.layout
        }  # fmt: skip


def _counts(row: Row) -> bool:
    """Whether a turn is part of its dialogue: not after a stop rule fired, and not of a dialogue that failed."""
    stop = row.get("stop_turn")
    return row.get("status") != "error" and (stop is None or row["turn"] <= stop)


def _summed(row: Row, ratio_T: Floats) -> float:
    value = float(ratio_T.sum())
    if not math.isfinite(value):
        raise NumericalError(
            f"{row_name(row)}: reward model and reference give no finite log-ratio of its tokens. Are both policies of"
            " the same family, and is their precision enough? Nothing was written."
        )
    return value
