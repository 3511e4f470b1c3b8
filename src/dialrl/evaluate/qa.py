"""``dialrl evaluate qa``: stored answers against accepted ones, by source and as the mean of sources, 0 to 100.

Three figures, each named: word-set F1 (what training rewards), SQuAD F1 and exact match. Source: docs/benchmarks/qa.md;
arXiv 2510.14967. Not here: the comparison of two answers (``dialrl.scenario.answers``), reading (``qa_answers``).
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dialrl.errors import InputError
from dialrl.evaluate.benchmark_config import QaConfig
from dialrl.evaluate.item_results import ItemResults
from dialrl.evaluate.qa_answers import StoredAnswer, load_answers, refuse_seen
from dialrl.evaluate.statistics import percentile_interval, scenario_bootstrap
from dialrl.scenario.answers import best_over, exact_match, squad_f1, word_set_f1
from dialrl.scenario.questions import Question, load_questions
from dialrl.summary import StageSummary

MEASURES = {"word_set_f1": word_set_f1, "squad_f1": squad_f1, "exact_match": exact_match}
COLUMNS = [("source", pa.string()), ("answer", pa.string()), ("squad_f1", pa.float64()), ("exact_match", pa.float64())]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class _Scored:
    """One try at one question; ``values``: the measures, 0 to 100."""

    question: Question
    text: str | None
    values: tuple[float, ...]


def evaluate_qa(
    answers: Path,
    questions: Path,
    config: QaConfig | None = None,
    *,
    training: Sequence[Path] = (),
    output: Path | None = None,
    overwrite: bool = False,
) -> StageSummary:
    """Score ``answers`` against ``questions``; a question without one counts 0, several tries count as their mean.

    Raises InputError for an answer to no question, a question without an accepted answer, and questions whose ids stand
    in ``training``.
    """
    config = config or QaConfig()
    asked = _of_split(load_questions(questions), config.split, questions)
    seen = refuse_seen(asked, training)
    held = asked[: config.limit]
    scored = _scored(held, load_answers(answers), {question.id for question in asked}, answers)
    if output is not None:
        results = ItemResults("qa", COLUMNS, [_row(one, number) for number, one in enumerate(scored)])
        results.write(output, [answers, questions, *training], config, overwrite=overwrite)
    counts = {
        "questions": len(held),
        "answers": sum(one.text is not None for one in scored),
        "without_answer": sum(one.text is None for one in scored),
        "training_ids_checked": seen,
    }
    return StageSummary("evaluate qa", output, counts, _figures(scored, config), _warnings(counts, config))


def _of_split(questions: list[Question], split: str | None, place: Path) -> list[Question]:
    found = [question for question in questions if split in (None, question.split)]
    if not found:
        known = sorted({question.split for question in questions})
        raise InputError(f"'{place}' has no questions of the split '{split}'; it has: {', '.join(known)}.")
    return found


def _scored(held: Sequence[Question], answers: Sequence[StoredAnswer], known: set[str], place: Path) -> list[_Scored]:
    tries: dict[str, list[str | None]] = defaultdict(list)
    for answer in answers:
        if answer.id not in known:
            raise InputError(f"'{place}' answers '{answer.id}', which is none of the {len(known)} questions given.")
        tries[answer.id].append(answer.text)
    return [_score(question, text) for question in held for text in tries.get(question.id, [None])]


def _score(question: Question, text: str | None) -> _Scored:
    if not question.answers:
        raise InputError(
            f"Question '{question.id}' has no accepted answer, so nothing can be right. Leave it out with dialrl import"
            " qa --skip-unanswered."
        )
    values = (100.0 * best_over(measure, text or "", question.answers) for measure in MEASURES.values())
    return _Scored(question, text, tuple(values))


def _row(one: _Scored, number: int) -> dict[str, Any]:
    word_set, squad, exact = one.values
    return {
        "scenario_id": one.question.id,
        "item": f"{one.question.id}/{number}",
        "score": word_set,
        "status": "scored" if one.text is not None else "without_answer",
        "source": one.question.source,
        "answer": one.text,
        "squad_f1": squad,
        "exact_match": exact,
    }


def _figures(scored: Sequence[_Scored], config: QaConfig) -> dict[str, Any]:
    """``score`` is the mean of the sources' word-set F1: each source weighs the same, as in the papers' tables."""
    by_source: dict[str, list[_Scored]] = defaultdict(list)
    for one in scored:
        by_source[one.question.source or "none"].append(one)
    names = sorted(by_source)
    value_DM = {name: np.array([one.values for one in by_source[name]]) for name in names}
    drawn = {name: _drawn(by_source[name], value_DM[name], config, number) for number, name in enumerate(names)}
    means = {name: value_DM[name].mean(axis=0) for name in names}
    mean = np.mean(list(means.values()), axis=0)
    mean_drawn = np.mean(list(drawn.values()), axis=0)
    return {
        "score": float(mean[0]),
        **_named(mean),
        "intervals": _intervals(mean_drawn, config),
        "by_source": {
            name: {**_named(means[name]), "tries": len(by_source[name]), "intervals": _intervals(drawn[name], config)}
            for name in names
        },
        "over_all_answers": _named(np.concatenate(list(value_DM.values())).mean(axis=0)),
        "settings": {"split": config.split, "limit": config.limit, "resamples": config.resamples, "seed": config.seed},
    }


def _drawn(scored: Sequence[_Scored], value_DM: Floats, config: QaConfig, number: int) -> Floats:
    """Bootstrap means (B, M) of one source: whole questions are drawn, each source on its own."""
    ids = [one.question.id for one in scored]
    return scenario_bootstrap(value_DM, ids, resamples=config.resamples, seed=config.seed + number)


def _named(value_M: Floats) -> dict[str, float]:
    return {name: float(value) for name, value in zip(MEASURES, value_M, strict=True)}


def _intervals(drawn_BM: Floats, config: QaConfig) -> Mapping[str, Mapping[str, float]]:
    return {
        name: percentile_interval(drawn_BM[:, column], config.confidence).to_json()
        for column, name in enumerate(MEASURES)
    }


def _warnings(counts: Mapping[str, int], config: QaConfig) -> tuple[str, ...]:
    found = []
    if counts["without_answer"]:
        found.append(f"{counts['without_answer']} tries have no answer; they count 0.")
    if not counts["training_ids_checked"]:
        found.append("No training data was named (--training): whether these questions were trained on is not checked.")
    if config.limit is not None:
        found.append(f"Only the first {counts['questions']} questions were scored.")
    return tuple(found)
