"""``dialrl judge --judge information-gain``, ``judge_options.targets=needs``: what the user's answers tell of a need.

Beyond the paper, a hypothesis: IGPO's credit for dialogues with a hidden need in place of a question with an answer. A
frozen listener chooses among a closed set of needs; ``belief_before`` and ``belief_after`` are its log-probabilities of
the right one after the policy's reply and after the user's answer to it, so that their difference is what the reply
made the user tell (ask-gain), and never what the policy said itself. Beside it the control: the same for the need of
another dialogue. Source: docs/stages/judge-information-gain.md. Not here: sets (``need_sets``), rendering
(``need_tasks``), files (``belief_stage``).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dialrl.judge.belief_scorer import BeliefScorer
from dialrl.judge.belief_stage import BeliefStage
from dialrl.judge.belief_tasks import Row
from dialrl.judge.config import JudgeConfig
from dialrl.judge.need_figures import GainFigures
from dialrl.judge.need_options import NeedOptions, need_options
from dialrl.judge.need_sets import NeedSets, quotes
from dialrl.judge.need_tasks import hear, need_tasks
from dialrl.judge.scenarios import Scenarios
from dialrl.model.belief.gold import GoldAlias
from dialrl.progress import SILENT, Progress
from dialrl.summary import StageSummary
from dialrl.trajectory.reader import TrajectoryFile
from dialrl.trajectory.schema import KEYS

NEEDS = ("scenario_id", "environment", "messages", "reply")


def judge_needs(
    inputs: Path | Sequence[Path],
    output: Path,
    config: JudgeConfig,
    *,
    listener: str | Path,
    overwrite: bool = False,
    resume: bool = False,
    slim: bool = False,
    progress: Progress = SILENT,
) -> StageSummary:
    """Score ``inputs`` with the ears of ``listener`` into ``output``.

    Raises InputError for cards without a hidden need, FailureThresholdError (after writing) when more than
    ``config.max_missing`` of the gains are missing.
    """
    options = need_options(config.judge_options)
    source = TrajectoryFile.open(inputs, needs=NEEDS)
    scorer = BeliefScorer(listener, options, options.template_options)
    sets = NeedSets(Scenarios(source, config.environment_options), options, config.seed)
    work = NeedBeliefs(options, scorer, sets)
    return BeliefStage(source, output, config, work, progress).run(overwrite=overwrite, resume=resume, slim=slim)


class NeedBeliefs:
    """A frozen listener's belief in a card's need among others."""

    reads: tuple[str, ...] = (*KEYS, *NEEDS, "final_messages", "end_reason", "status")
    writes: tuple[str, ...] = (
        "belief_before", "belief_after", "belief_before_shuffled", "belief_after_shuffled", "belief_alias",
    )  # fmt: skip

    def __init__(self, options: NeedOptions, scorer: BeliefScorer, sets: NeedSets) -> None:
        self._options, self._scorer, self._sets = options, scorer, sets
        self._gold: dict[str, GoldAlias] = {}
        self._figures = GainFigures()

    @property
    def digest(self) -> str:
        return self._scorer.digest

    def check(self, rows: Sequence[Row]) -> None:
        """The scenario's card has a need, and others have others."""
        self._sets.note(rows[0])

    def score(self, dialogues: Sequence[Sequence[Row]]) -> list[Row]:
        made = []
        for rows in dialogues:
            needs = self._sets.of(rows[0])
            golds = [self._encoded(text) for text in needs.candidates]
            limit = self._scorer.limit_tokens
            made.append(need_tasks(rows, needs, golds, self._scorer.template, limit_tokens=limit))
        beliefs = iter(self._scorer.score([task for dialogue in made for task in dialogue.tasks]))
        return [
            row
            for dialogue in made
            for row in dialogue.columns(
                [next(beliefs) for _ in dialogue.tasks],
                tau=self._options.tau,
                quote_characters=self._options.quote_characters,
            )
        ]

    def _encoded(self, text: str) -> GoldAlias:
        if text not in self._gold:
            self._gold[text] = self._scorer.encode(text, header=True)
        return self._gold[text]

    def count(self, dialogues: Sequence[Sequence[Row]], scored: Sequence[Row]) -> Counter[str]:
        """Gains known and missing (a reply that nobody answered has none), and answers that quote the need."""
        counts: Counter[str] = Counter()
        beliefs = iter(scored)
        for rows in dialogues:
            heard, needs = hear(rows), self._sets.of(rows[0])
            held = [next(beliefs) for _ in rows]
            self._figures.add(rows[0]["scenario_id"], held, needs)
            for answer, belief in zip(heard.answers, held, strict=True):
                known = belief["belief_before"] is not None and belief["belief_after"] is not None
                counts["gains_known" if known else "gains_missing"] += 1
                counts["answers_that_quote"] += quotes(
                    answer, needs.candidates[needs.target], self._options.quote_characters
                )
        return counts

    def totals(self) -> dict[str, int]:
        return {"needs_scored": len(self._gold)}

    def details(self) -> dict[str, Any]:
        return {
            "targets": self._options.targets,
            "scorer_digest": self.digest,
            "packed": self._scorer.packed,
            "attention": self._scorer.attention,
            **self._figures.to_json(),
        }

    def warnings(self, counts: Mapping[str, int]) -> tuple[str, ...]:
        found = []
        if counts.get("gains_missing"):
            found.append(f"{counts['gains_missing']} gains are missing; they stay null and train nothing.")
        if counts.get("answers_that_quote"):
            found.append(f"{counts['answers_that_quote']} answers quote the need word for word: they earn nothing.")
        return (*found, *self._figures.warnings(), *self._scorer.warnings())
