"""``dialrl judge --judge information-gain``: a policy's belief in the answer before and after every turn (IGPO).

Adds ``belief_before``, ``belief_after`` (mean log-prob of the best accepted answer) and ``belief_alias``; grades of
other judges stay. Source: docs/stages/judge-information-gain.md; arXiv 2510.14967. Not here: blocks and files
(``belief_stage``), the forward (``dialrl.model.belief``), hidden needs (``information_gain_needs``), gains
(``dialrl.returns``).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dialrl.errors import InputError, UsageError
from dialrl.judge.belief_options import BeliefOptions, belief_options
from dialrl.judge.belief_scorer import BeliefScorer
from dialrl.judge.belief_stage import BeliefStage
from dialrl.judge.belief_tasks import ENDED_BY_POLICY, Row, dialogue_tasks
from dialrl.judge.config import JudgeConfig
from dialrl.judge.scenarios import Scenarios
from dialrl.model.belief.gold import GoldAlias
from dialrl.progress import SILENT, Progress
from dialrl.scenario.answers import distinct_aliases
from dialrl.summary import StageSummary
from dialrl.trajectory.agreement import agreed, rollouts
from dialrl.trajectory.reader import TrajectoryFile
from dialrl.trajectory.schema import KEYS

NEEDS = ("scenario_id", "environment", "segment", "prompt_ids", "reply_ids")


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
    scorer = BeliefScorer(policy, options, template_options(source))
    work = AnswerBeliefs(options, scorer, Scenarios(source, config.environment_options))
    return BeliefStage(source, output, config, work, progress).run(overwrite=overwrite, resume=resume, slim=slim)


class AnswerBeliefs:
    """Belief in the accepted answers of a scenario, by the policy's own ids."""

    reads: tuple[str, ...] = (*KEYS, *NEEDS, "final_ids", "end_reason", "status", "policy_digest")
    writes: tuple[str, ...] = ("belief_before", "belief_after", "belief_alias")

    def __init__(self, options: BeliefOptions, scorer: BeliefScorer, scenarios: Scenarios) -> None:
        self._options, self._scorer, self._scenarios = options, scorer, scenarios
        self._gold: dict[tuple[str, str], tuple[GoldAlias, ...]] = {}
        self._left_out: dict[tuple[str, str], int] = {}

    @property
    def digest(self) -> str:
        return self._scorer.digest

    def check(self, rows: Sequence[Row]) -> None:
        """The policy is the rollout's, and every accepted answer can be turned into tokens."""
        sampled_by = rows[0].get("policy_digest")
        if self._options.scorer == "rollout" and sampled_by != self.digest:
            raise UsageError(
                f"Dialogue '{rows[0]['group_id']}/{rows[0]['sample']}' was sampled by the policy {sampled_by}; given is"
                f" {self.digest}. Give the policy of the rollout, or set scorer to frozen to score with another."
            )
        self._aliases(rows[0])

    def score(self, dialogues: Sequence[Sequence[Row]]) -> list[Row]:
        header, limit = self._scorer.header_ids, self._scorer.limit_tokens
        made = [
            dialogue_tasks(rows, self._aliases(rows[0]), header_ids=header, limit_tokens=limit) for rows in dialogues
        ]
        beliefs = iter(self._scorer.score([task for dialogue in made for task in dialogue.tasks]))
        return [
            row for dialogue in made for row in dialogue.columns([next(beliefs) for _ in range(len(dialogue.tasks))])
        ]

    def count(self, dialogues: Sequence[Sequence[Row]], scored: Sequence[Row]) -> Counter[str]:
        """Gains known, missing and not applicable: a turn that ends its dialogue by an answer asks for nothing."""
        counts: Counter[str] = Counter()
        beliefs = iter(scored)
        for rows in dialogues:
            for number, row in enumerate(rows):
                belief = next(beliefs)
                if number + 1 == len(rows) and row.get("end_reason") in ENDED_BY_POLICY:
                    counts["gains_not_applicable"] += 1
                elif belief["belief_before"] is None or belief["belief_after"] is None:
                    counts["gains_missing"] += 1
                else:
                    counts["gains_known"] += 1
        return counts

    def totals(self) -> dict[str, int]:
        return {
            "aliases_scored": sum(map(len, self._gold.values())),
            "aliases_left_out": sum(self._left_out.values()),
            "scenarios_without_answer": sum(not gold for gold in self._gold.values()),
        }

    def details(self) -> dict[str, Any]:
        return {
            "scorer": self._options.scorer,
            "scorer_digest": self.digest,
            "packed": self._scorer.packed,
            "attention": self._scorer.attention,
        }

    def warnings(self, counts: Mapping[str, int]) -> tuple[str, ...]:
        found = []
        if counts.get("gains_missing"):
            found.append(f"{counts['gains_missing']} gains are missing; they stay null and train nothing.")
        if counts.get("scenarios_without_answer"):
            found.append(f"{counts['scenarios_without_answer']} scenarios have no answer: no belief, no gain.")
        return (*found, *self._scorer.warnings())

    def _aliases(self, row: Row) -> tuple[GoldAlias, ...]:
        """The accepted answers of a dialogue's scenario, as tokens; none where its card has none."""
        key = (row["environment"], row["scenario_id"])
        if key not in self._gold:
            kept, left_out = distinct_aliases(self._answers(row), self._options.alias_limit)
            self._gold[key] = tuple(self._scorer.encode(alias) for alias in kept)
            self._left_out[key] = left_out
        return self._gold[key]

    def _answers(self, row: Row) -> Sequence[str]:
        card = self._scenarios.find(row).card
        if "answers" not in card:
            raise InputError(
                f"Scenarios of the environment '{row['environment']}' have no accepted answers (key 'answers' of their"
                " card): there is nothing to believe in. Use the environment search, or judge_options.targets=needs,"
                " or another judge."
            )
        answers: Sequence[str] = card["answers"]
        return answers


def template_options(source: TrajectoryFile) -> Mapping[str, Any]:
    """Those of the rollout: the belief is asked after the headers that the policy saw.

    Raises InputError for parts that were rolled out with different ones.
    """
    found = [
        (where, {} if record is None else record.options.get("template_options") or {})
        for where, record in rollouts(source)
    ]
    return agreed(found, done="rolled out", advice="Score files one at a time whose template options differ.")
