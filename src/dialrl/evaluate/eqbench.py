"""``dialrl evaluate eqbench``: the EQ-Bench v2 score of answers, with what was parsed and what was left out.

Not here: the formula and the aggregation (``eqbench_score``), the files (``eqbench_data``), asking a model
(``eqbench_live``).
"""

from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dialrl.evaluate.answer_store import FAILED, failure_warning, stored_rows
from dialrl.evaluate.benchmark_config import EqBenchConfig
from dialrl.evaluate.eqbench_answers import ASKED_COLUMNS, Answers, asked_values, raw_by_iteration
from dialrl.evaluate.eqbench_data import Question, load_iterations, load_questions
from dialrl.evaluate.eqbench_score import (
    SCALE,
    Answer,
    RunScore,
    anchors,
    is_failed,
    is_valid,
    item_score,
    lm_eval,
    official,
)
from dialrl.evaluate.item_results import ItemResults
from dialrl.evaluate.statistics import mean_or_none, percentile_interval, scenario_bootstrap, wilson_interval
from dialrl.summary import StageSummary

Scores = list[float | None]
COLUMNS = [
    ("iteration", pa.string()),
    ("first_pass_score", pa.float64()),
    ("revised_score", pa.float64()),
    ("block", pa.string()),
    *ASKED_COLUMNS,
]


def evaluate_eqbench(
    answers: Path,
    questions: Path,
    config: EqBenchConfig | None = None,
    *,
    output: Path | None = None,
    overwrite: bool = False,
) -> StageSummary:
    """Score the stored ``answers`` to ``questions``; with ``output`` also one row an item and iteration.

    ``answers``: a result file of the benchmark, or the results of a model that was asked (Parquet). Raises InputError
    naming file, line and field for what is not as the benchmark writes it.
    """
    config = config or EqBenchConfig()
    known = load_questions(questions)
    revision = False if config.aggregation == "lm-eval" else config.revision
    origin: Mapping[str, Any] = {}
    if answers.suffix == ".parquet":
        rows, made = stored_rows(answers, "eqbench")
        origin = {"policy": made["policy"]}
        held = raw_by_iteration(rows, known, answers)
        asked_revision = bool(made["options"]["revision"]) if revision is None else revision
        found = [Answers.of_raw(name, raw, revision=asked_revision) for name, raw in held.items()]
    else:
        found = [Answers(one) for one in load_iterations(answers, known, source=config.source, revision=revision)]
    asked = dict(islice(known.items(), config.limit))
    return score_answers(found, asked, [answers, questions], config, output=output, overwrite=overwrite, origin=origin)


def score_answers(
    answers: Sequence[Answers],
    questions: Mapping[str, Question],
    inputs: Sequence[Path],
    config: EqBenchConfig,
    *,
    output: Path | None,
    overwrite: bool,
    origin: Mapping[str, Any],
) -> StageSummary:
    """The summary of ``answers`` to ``questions``, and the results file if there is to be one."""
    scored = [_Scored(one, questions, config) for one in answers]
    if output is not None:
        rows = [row for one in scored for row in one.rows()]
        ItemResults("eqbench", COLUMNS, rows, origin).write(output, inputs, config, overwrite=overwrite)
    return _summary(scored, config, output)


class _Scored:
    """One iteration's item scores, 0 to 10 (None: not parsed), and the run's score made of them."""

    def __init__(self, answers: Answers, questions: Mapping[str, Question], config: EqBenchConfig) -> None:
        iteration = answers.iteration
        self.iteration, self.raw, self.questions, self.config = iteration, answers.raw, questions, config
        self.first_pass = self._block(iteration.first_pass)
        self.revised = self._block(iteration.revised)
        harness = config.aggregation == "lm-eval"
        answered = [score for key, score in zip(questions, self.first_pass, strict=True) if not self.failed(key)]
        self.run: RunScore = lm_eval(answered) if harness else official(self.first_pass, self.revised)

    def _block(self, answers: Mapping[str, Answer]) -> Scores:
        return [self._item(answers.get(key), question.reference) for key, question in self.questions.items()]

    def _item(self, answer: Answer | None, reference: Answer) -> float | None:
        harness = self.config.aggregation == "lm-eval"
        if answer is None or not is_valid(answer, reference, zeros_count=harness):
            return None
        return item_score(answer, reference, five_is_curved=self.config.five_is_curved)

    @property
    def counted(self) -> Scores:
        """Scores of the block that counts, on the published scale; in lm-eval an unparsed item is 0."""
        block = self.revised if self.run.block == "revised" else self.first_pass
        harness = self.config.aggregation == "lm-eval"
        return [
            (0.0 if harness and not self.failed(key) else None) if score is None else SCALE * score
            for key, score in zip(self.questions, block, strict=True)
        ]

    @property
    def unanswered(self) -> int:
        """Questions without an entry in the file."""
        return sum(key not in self.iteration.first_pass for key in self.questions)

    def rows(self) -> list[dict[str, Any]]:
        block = self.revised if self.run.block == "revised" else self.first_pass
        return [
            {
                "scenario_id": key,
                "item": key,
                "iteration": self.iteration.name,
                "score": score,
                "status": self._status(key, score_of_block),
                "first_pass_score": first,
                "revised_score": second,
                "block": self.run.block,
                **asked_values(self.raw.get(key)),
            }
            for key, score, score_of_block, first, second in zip(
                self.questions, self.counted, block, self.first_pass, self.revised, strict=True
            )
        ]

    def _status(self, key: str, score: float | None) -> str:
        if score is not None:
            return "scored"
        return FAILED if self.failed(key) else "unparsed"

    def failed(self, key: str) -> bool:
        """The question was asked, and no call gave an answer."""
        return key in self.raw and self.raw[key].answer is None


def _summary(scored: Sequence[_Scored], config: EqBenchConfig, output: Path | None) -> StageSummary:
    runs = [one.run for one in scored]
    parsed, asked = sum(run.parsed for run in runs), sum(run.items for run in runs)
    failed = is_failed(parsed, asked)
    figures: dict[str, Any] = {
        "score": mean_or_none([run.score for run in runs if run.score is not None]),
        "failed": failed,
        "parse_rate": parsed / asked,
        "intervals": {
            "score": _interval(scored, config),
            "parse_rate": wilson_interval(parsed, asked, config.confidence).to_json(),
        },
        "iterations": {one.iteration.name: _iteration_figures(one.run) for one in scored},
        "anchors": anchors(
            (question.reference for question in scored[0].questions.values()), five_is_curved=config.five_is_curved
        ),
        "settings": _settings(scored, config),
    }
    failed_calls = sum(one.failed(key) for one in scored for key in one.questions)
    counts = {
        "questions": len(scored[0].questions),
        "iterations": len(scored),
        "parsed": parsed,
        "unparsed": asked - parsed,
        "unanswered": sum(one.unanswered for one in scored),
        **({"failed_calls": failed_calls} if failed_calls else {}),
    }
    return StageSummary("evaluate eqbench", output, counts, figures, _warnings(counts, config, failed=failed))


def _iteration_figures(run: RunScore) -> dict[str, Any]:
    return {
        "score": run.score,
        "block": run.block,
        "parsed": run.parsed,
        "first_pass": run.first_pass,
        "revised": run.revised,
        "failed": is_failed(run.parsed, run.items),
    }


def _interval(scored: Sequence[_Scored], config: EqBenchConfig) -> dict[str, float] | None:
    """Items are drawn again, with all their iterations; None where nothing was parsed."""
    counted = [
        (key, score)
        for one in scored
        for key, score in zip(one.questions, one.counted, strict=True)
        if score is not None
    ]
    if not counted:
        return None
    values = np.array([[score] for _, score in counted])
    drawn = scenario_bootstrap(values, [key for key, _ in counted], resamples=config.resamples, seed=config.seed)
    return percentile_interval(drawn[:, 0], config.confidence).to_json()


def _settings(scored: Sequence[_Scored], config: EqBenchConfig) -> dict[str, Any]:
    """What moves the score, as it was applied."""
    return {
        "aggregation": config.aggregation,
        "boundary": "<=5" if config.five_is_curved else "<5",
        "source": "asked" if any(one.raw for one in scored) else config.source,
        "revision": any(one.iteration.revised and any(one.iteration.revised.values()) for one in scored),
        "limit": config.limit,
        "resamples": config.resamples,
        "seed": config.seed,
    }


def _warnings(counts: Mapping[str, int], config: EqBenchConfig, *, failed: bool) -> tuple[str, ...]:
    found = [*failure_warning(counts.get("failed_calls", 0))]
    if failed:
        asked = counts["parsed"] + counts["unparsed"]
        found.append(
            f"{counts['parsed']} of {asked} items were parsed: the benchmark counts such a run as failed"
            " (83.33 %, 143 of 171, are needed) and publishes no score for it."
        )
    if counts["unparsed"] and config.aggregation == "official":
        rest = "the score is the mean of the others" if counts["parsed"] else "there is no score"
        found.append(f"{counts['unparsed']} items were not parsed; {rest}.")
    if config.limit is not None:
        found.append(f"Only {counts['questions']} questions were scored: this is no EQ-Bench score.")
    return tuple(found)
