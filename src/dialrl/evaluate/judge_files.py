"""A judge seen through a file it judged: length, missing gradings, and agreement with a second grading or with labels.

Not here: planted replies (``judge_measures``), the measures of agreement (``agreement``).
"""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dialrl.evaluate.agreement import evaluate_agreement
from dialrl.evaluate.agreement_files import JudgedFile, side_by_side
from dialrl.evaluate.benchmark_config import AgreementConfig
from dialrl.evaluate.judge_config import JudgeTrialConfig
from dialrl.evaluate.length_slope import length_slope
from dialrl.state.rubric import Rubric, load_rubric

_AGREEMENT = ("alpha", "kappa", "cosine")


def file_figures(
    judged: Path, again: Path | None, reference: Path | None, config: JudgeTrialConfig
) -> tuple[dict[str, float | None], dict[str, Any]]:
    """Measures by name, and further figures.

    ``again``: the same dialogues graded a second time by the same judge; ``reference``: graded by somebody who is
    right, such as people. Raises InputError for files on different dialogues.
    """
    rubric = load_rubric(config.rubric)
    file = JudgedFile.open(judged, judged.stem)
    rows = file.rows
    missing = sum(not row["grades"] for row in rows.values())
    values: dict[str, float | None] = {"missing_rate": missing / len(rows), "length_slope": None}
    figures: dict[str, Any] = {"turns": len(rows), "judged_by": file.judge, "levels": _levels(rows)}
    labels = None if reference is None else JudgedFile.open(reference, reference.stem).rows
    slope = _slope(rows, labels, rubric, config)
    if slope is not None:
        values["length_slope"] = slope["value"]
        figures["length_slope"] = slope
    if again is not None:
        figures["again"] = _compared(judged, again, config)
        values["test_retest_kappa"] = figures["again"]["kappa"]
    if reference is not None:
        figures["reference"] = _compared(judged, reference, config)
        figures["confusion"] = _confusion(judged, reference)
    source = figures.get("reference") or figures.get("again")
    values.update({} if source is None else {name: source[name] for name in ("alpha", "cosine")})
    return values, figures


def _compared(judged: Path, other: Path, config: JudgeTrialConfig) -> dict[str, Any]:
    settings = AgreementConfig(
        rubric=config.rubric, confidence=config.confidence, resamples=config.resamples, seed=config.seed
    )
    found = evaluate_agreement([judged, other], settings)
    return {**{name: found.figures[name] for name in _AGREEMENT}, "turns": found.counts["turns"]}


def _levels(rows: Mapping[Any, Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """How often each level was given, by indicator."""
    found: dict[str, Counter[int]] = {}
    for row in rows.values():
        for grade in row["grades"] or ():
            found.setdefault(grade["indicator"], Counter())[grade["level"]] += 1
    return {name: {str(level): counts[level] for level in sorted(counts)} for name, counts in found.items()}


def _slope(
    rows: Mapping[Any, Mapping[str, Any]],
    labels: Mapping[Any, Mapping[str, Any]] | None,
    rubric: Rubric,
    config: JudgeTrialConfig,
) -> dict[str, Any] | None:
    """Score by length among replies that the labels put level; without labels among those of the same turn."""
    held = [
        (key, row) for key, row in rows.items()
        if row["grades"] and row.get("reply") is not None and (labels is None or (labels.get(key) or {}).get("grades"))
    ]  # fmt: skip
    if not held:
        return None
    worth = [key[2] if labels is None else _score(labels[key], rubric) for key, _ in held]
    slope = length_slope(
        [len(row["reply"]) for _, row in held],
        [_score(row, rubric) for _, row in held],
        worth,
        [row.get("scenario_id") or key[0] for key, row in held],
        resamples=config.resamples,
        seed=config.seed,
        confidence=config.confidence,
    )
    within = "the same turn number: longer may be better there" if labels is None else "the same score by the reference"
    return None if slope is None else {**vars(slope), "within": within}


def _score(row: Mapping[str, Any], rubric: Rubric) -> float:
    return sum(rubric.increment_from_levels({grade["indicator"]: grade["level"] for grade in row["grades"]}))


def _confusion(judged: Path, reference: Path) -> dict[str, dict[str, dict[str, int]]]:
    """By indicator and level of the reference: how often the judge gave each level."""
    names = ("judge", "reference")
    shared = side_by_side([JudgedFile.open(path, name) for path, name in zip((judged, reference), names, strict=True)])
    found: dict[str, dict[str, dict[str, int]]] = {}
    for name, (given_K, label_K) in shared.level_FK.items():
        known = ~np.isnan(given_K) & ~np.isnan(label_K)
        pairs = Counter(zip(label_K[known].astype(int).tolist(), given_K[known].astype(int).tolist(), strict=True))
        levels = sorted({level for pair in pairs for level in pair})
        found[name] = {
            str(label): {str(level): pairs[label, level] for level in levels}
            for label in sorted({label for label, _ in pairs})
        }
    return found
