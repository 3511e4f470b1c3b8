"""``dialrl judge --judge information-gain``: a policy's belief in the answer before and after every turn (IGPO).

Adds ``belief_before``, ``belief_after`` (mean log-prob of the best accepted answer) and ``belief_alias``; grades of
other judges stay. Finished blocks are kept, so a killed run continues. Source: docs/stages/judge-information-gain.md;
arXiv 2510.14967. Not here: the forward (``dialrl.model.belief``), gains (``dialrl.returns``).
"""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from dialrl.environment.base import Environment
from dialrl.environment.registry import open_environment
from dialrl.errors import FailureThresholdError, InputError, UsageError
from dialrl.judge.belief_options import BeliefOptions, belief_options
from dialrl.judge.belief_scorer import BeliefScorer
from dialrl.judge.belief_tasks import ENDED_BY_POLICY, Row, dialogue_tasks
from dialrl.judge.config import JudgeConfig
from dialrl.model.belief.gold import GoldAlias
from dialrl.progress import SILENT, Progress
from dialrl.scenario.answers import distinct_aliases
from dialrl.summary import StageSummary
from dialrl.trajectory.lineage import StageRecord, write_run_file
from dialrl.trajectory.parts import Parts, discard_parts
from dialrl.trajectory.reader import TrajectoryFile
from dialrl.trajectory.rows import rows_to_table, table_to_dialogues
from dialrl.trajectory.schema import KEYS
from dialrl.trajectory.transform import finished_before, transform

NAME = "information-gain"
NEEDS = ("scenario_id", "environment", "segment", "prompt_ids", "reply_ids")
READS = (*KEYS, *NEEDS, "final_ids", "end_reason", "status", "policy_digest")
WRITES = ("belief_before", "belief_after", "belief_alias")


def judge_beliefs(
    inputs: Path | Sequence[Path],
    output: Path,
    config: JudgeConfig,
    *,
    policy: str | Path,
    overwrite: bool = False,
    resume: bool = False,
    slim: bool = False,
    progress: Progress = SILENT,
) -> StageSummary:
    """Score ``inputs`` with the belief of ``policy`` into ``output``.

    Raises InputError for dialogues without token ids, UsageError for another policy than the rollout's (unless the
    scorer is frozen), FailureThresholdError (after writing) when more than ``config.max_missing`` of the gains are
    missing.
    """
    options = belief_options(config.judge_options)
    source = TrajectoryFile.open(inputs, needs=NEEDS)
    began = time.monotonic()
    scorer = BeliefScorer(policy, options, _template_options(source))
    work = _Scoring(source, output, config, options, scorer, progress)
    if resume and work.is_finished(overwrite=overwrite):
        discard_parts(output)
        record = TrajectoryFile.open(output).lineage.record("judge")
        work.counts.update({} if record is None else record.counts)
        _check_missing(output, work.counts, config)
        return StageSummary("judge", output, dict(work.counts), {"already_complete": True}, work.warnings())
    work.run(overwrite=overwrite, resume=resume, slim=slim)
    write_run_file(output, seconds=time.monotonic() - began)
    _check_missing(output, work.counts, config)
    return StageSummary("judge", output, dict(sorted(work.counts.items())), work.figures(), work.warnings())


@dataclass
class _Scoring:
    """One call of ``judge_beliefs``."""

    source: TrajectoryFile
    output: Path
    config: JudgeConfig
    options: BeliefOptions
    scorer: BeliefScorer
    progress: Progress
    counts: Counter[str] = field(default_factory=Counter)
    _environments: dict[str, Environment] = field(default_factory=dict)
    _gold: dict[tuple[str, str], tuple[GoldAlias, ...]] = field(default_factory=dict)
    _left_out: dict[tuple[str, str], int] = field(default_factory=dict)
    _starts: list[int] = field(default_factory=list)

    def is_finished(self, *, overwrite: bool) -> bool:
        """Whether the output is there, from the same input, settings and policy."""
        if not finished_before(self.output, stage="judge", config=self.config, source=self.source, overwrite=overwrite):
            return False
        record = TrajectoryFile.open(self.output).lineage.record("judge")
        before = None if record is None else record.details.get("scorer_digest")
        if before == self.scorer.digest:
            return True
        if overwrite:
            return False
        raise UsageError(
            f"Cannot resume '{self.output}': it was scored by the policy {before}, now given is {self.scorer.digest}."
            " Use --overwrite, or another output."
        )

    def run(self, *, overwrite: bool, resume: bool, slim: bool) -> None:
        options = {**self.config.semantic_values(), "scorer": self.scorer.digest}
        identity = {"options": options, "input": self.source.digest()}
        self._check_dialogues()
        parts = Parts(self.output, identity, overwrite=overwrite, resume=resume)
        self._score_blocks(parts)
        blocks = iter(self._starts)
        transform(
            self.source,
            self.output,
            stage="judge",
            adds=WRITES,
            reads=[name for name in READS if name in self.source.names],
            compute=lambda table: self._scored(parts, next(blocks), table),
            record=self._record,
            slim=slim,
            overwrite=overwrite or resume,
            batch_rows=self.config.batch_rows,
        )
        parts.clear()

    def _check_dialogues(self) -> None:
        """Refuse what cannot be scored, and turn every accepted answer into tokens, before any work is done."""
        names = [n for n in ("environment", "scenario_id", "policy_digest") if n in self.source.names]
        for table in self.source.groups([*KEYS, *names], self.config.batch_rows):
            for rows in table_to_dialogues(table):
                self._check_scorer(rows)
                self._aliases(rows[0])

    def _score_blocks(self, parts: Parts) -> None:
        """Blocks are numbered by their first row, so that another ``batch_rows`` takes those that still fit."""
        start = 0
        self.progress.start("judge", self.source.num_rows, "turns")
        reads = [name for name in READS if name in self.source.names]
        for table in self.source.groups(reads, self.config.batch_rows):
            if parts.rows(start) != table.num_rows:
                rows = self._score_block(list(table_to_dialogues(table)))
                parts.write(start, rows_to_table(rows, [*KEYS, *WRITES]))
            self._starts.append(start)
            start += table.num_rows
            self.progress.advance(table.num_rows)

    def _score_block(self, dialogues: Sequence[list[Row]]) -> list[Row]:
        made = []
        for rows in dialogues:
            made.append(
                dialogue_tasks(
                    rows,
                    self._aliases(rows[0]),
                    header_ids=self.scorer.header_ids,
                    limit_tokens=self.scorer.limit_tokens,
                )
            )
        beliefs = iter(self.scorer.score([task for dialogue in made for task in dialogue.tasks]))
        return [
            row for dialogue in made for row in dialogue.columns([next(beliefs) for _ in range(len(dialogue.tasks))])
        ]

    def _check_scorer(self, rows: Sequence[Row]) -> None:
        sampled_by = rows[0].get("policy_digest")
        if self.options.scorer == "rollout" and sampled_by != self.scorer.digest:
            raise UsageError(
                f"Dialogue '{rows[0]['group_id']}/{rows[0]['sample']}' was sampled by the policy {sampled_by}; given is"
                f" {self.scorer.digest}. Give the policy of the rollout, or set scorer to frozen to score with another."
            )

    def _aliases(self, row: Row) -> tuple[GoldAlias, ...]:
        """The accepted answers of a dialogue's scenario, as tokens; none where its card has none."""
        key = (row["environment"], row["scenario_id"])
        if key not in self._gold:
            kept, left_out = distinct_aliases(self._answers(*key), self.options.alias_limit)
            self._gold[key] = tuple(self.scorer.encode(alias) for alias in kept)
            self._left_out[key] = left_out
        return self._gold[key]

    def _answers(self, environment: str, scenario_id: str) -> Sequence[str]:
        if environment not in self._environments:
            self._environments[environment] = open_environment(environment, self.config.environment_options)
        card = self._environments[environment].find(scenario_id).card
        if "answers" not in card:
            raise InputError(
                f"Scenarios of the environment '{environment}' have no accepted answers (key 'answers' of their card):"
                " there is nothing to believe in. Use the environment search, or another judge."
            )
        answers: Sequence[str] = card["answers"]
        return answers

    def _scored(self, parts: Parts, block: int, source: pa.Table) -> Mapping[str, pa.ChunkedArray]:
        table = parts.read(block)
        self.counts.update(_counts(list(table_to_dialogues(source)), table.to_pylist()))
        return {name: table[name] for name in WRITES}

    def _record(self) -> StageRecord:
        self.counts["aliases_scored"] = sum(map(len, self._gold.values()))
        self.counts["aliases_left_out"] = sum(self._left_out.values())
        self.counts["scenarios_without_answer"] = sum(not gold for gold in self._gold.values())
        return StageRecord(
            "judge",
            options=self.config.semantic_values(),
            inputs=self.source.input_files,
            seed=self.config.seed,
            counts=dict(sorted(self.counts.items())),
            details={
                "scorer_digest": self.scorer.digest,
                "packed": self.scorer.packed,
                "attention": self.scorer.attention,
            },
            warnings=self.warnings(),
        )

    def figures(self) -> dict[str, Any]:
        return {"judge": NAME, "scorer": self.options.scorer, "scorer_digest": self.scorer.digest,
                "packed": self.scorer.packed, "attention": self.scorer.attention}  # fmt: skip

    def warnings(self) -> tuple[str, ...]:
        found = []
        if self.counts["gains_missing"]:
            found.append(f"{self.counts['gains_missing']} gains are missing; they stay null and train nothing.")
        if self.counts["scenarios_without_answer"]:
            found.append(f"{self.counts['scenarios_without_answer']} scenarios have no answer: no belief, no gain.")
        if not self.scorer.packed and self.options.method == "auto":
            found.append("This model cannot be branched: every prefix was computed with every answer, one by one.")
        return tuple(found)


def _template_options(source: TrajectoryFile) -> Mapping[str, Any]:
    """Variables of the chat template that the rollout was made with."""
    record = source.lineage.record("rollout")
    options: Mapping[str, Any] = {} if record is None else record.options.get("template_options") or {}
    return options


def _counts(dialogues: Sequence[Sequence[Row]], beliefs: Sequence[Row]) -> Counter[str]:
    """Gains known, missing and not applicable: a turn that ends its dialogue by an answer asks for nothing."""
    counts: Counter[str] = Counter()
    place = 0
    for rows in dialogues:
        for number, row in enumerate(rows):
            belief, place = beliefs[place], place + 1
            last = number + 1 == len(rows)
            if last and row.get("end_reason") in ENDED_BY_POLICY:
                counts["gains_not_applicable"] += 1
            elif belief["belief_before"] is None or belief["belief_after"] is None:
                counts["gains_missing"] += 1
            else:
                counts["gains_known"] += 1
    return counts


def _check_missing(output: Path, counts: Counter[str], config: JudgeConfig) -> None:
    missing, total = counts["gains_missing"], counts["gains_missing"] + counts["gains_known"]
    if missing > config.max_missing * total:
        raise FailureThresholdError(
            f"{missing} of {total} gains are missing: more than --max-missing {config.max_missing:g}. '{output}' was"
            " written; see its columns 'belief_before' and 'belief_after' (dialrl inspect)."
        )
