"""``dialrl evaluate empa``: EPM-Q, success rate and intervals of judged dialogues, from their trajectory file.

Reads any judged file with deficit, position and grades. Dialogues that broke or have no position are left out and
counted; a missing judgement keeps the position and adds no levels, as in the published scores. Source:
docs/stages/evaluate-empa.md. Not here: the formulas (``epm_q``), the resampling (``statistics``), holding
dialogues (``empa_live``).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dialrl.errors import InputError
from dialrl.evaluate.config import EmpaConfig
from dialrl.evaluate.empa_scores import Scores
from dialrl.evaluate.epm_q import DIMENSIONS, INDICES, KNOWN_FLAWS, dimension_scores, epm_q
from dialrl.evaluate.item_results import ItemResults
from dialrl.evaluate.statistics import (
    Floats,
    percentile_interval,
    scenario_bootstrap,
    smallest_detectable_difference,
    standard_error,
    wilson_interval,
)
from dialrl.progress import SILENT, Progress
from dialrl.ragged import Flags
from dialrl.summary import StageSummary
from dialrl.trajectory.reader import TrajectoryFile

NEEDS = ("deficit", "position", "grades")
ONE_SIGMA = 0.6826894921370859  # confidence of the interval that reaches one standard error to each side
COLUMNS = [("success", pa.bool_()), ("turns", pa.int64()), *((name, pa.float64()) for name in INDICES)]
MAY_USE = ("scenario_id", "status", "end_reason", "stop_turn", "judge_status")


def evaluate_empa(
    inputs: Path | str | Sequence[Path | str],
    config: EmpaConfig | None = None,
    *,
    output: Path | None = None,
    overwrite: bool = False,
    origin: Mapping[str, str] | None = None,
    progress: Progress = SILENT,
) -> StageSummary:
    """Score judged dialogues: ``epm_q``, ``dimensions``, ``indices``, ``success`` of ``dialogues``, and intervals.

    ``output``: also one row a dialogue; ``origin``: what they come from besides the input, for its metadata. Raises
    InputError when the input lacks deficit, position or grades, or no dialogue in it can be scored.
    """
    config = config or EmpaConfig()
    source = TrajectoryFile.open(inputs, needs=NEEDS)
    columns = ["group_id", "sample", "turn", *NEEDS, *(name for name in MAY_USE if name in source.names)]
    scores = Scores()
    progress.start("evaluate empa", source.num_rows, "turns")
    for table in source.groups(columns, config.batch_rows):
        scores.add(table, config)
        progress.advance(table.num_rows)
    if not scores.scenarios:
        raise InputError(
            f"No dialogue of {source.where} can be scored: {scores.counts['broken_dialogues']} broke and"
            f" {scores.counts['unjudged_dialogues']} have turns without a position. Run first: dialrl judge"
        )
    if output is not None:
        files = [shard.path for shard in source.shards]
        results = ItemResults("empa", COLUMNS, _rows(scores), origin or {})
        results.write(output, files, config, overwrite=overwrite)
    return StageSummary("evaluate empa", output, scores.all_counts(), _figures(scores, config), scores.warnings())


def _rows(scores: Scores) -> list[dict[str, Any]]:
    index_D9, success_D = np.concatenate(scores.index_D9), np.concatenate(scores.success_D)
    turns_D = np.concatenate(scores.turns_D)
    return [
        {
            "scenario_id": scenario,
            "item": dialogue,
            "score": float(epm_q(index_9)),
            "status": "scored",
            "success": bool(success),
            "turns": int(turns),
            **_named(INDICES, index_9),
        }
        for scenario, dialogue, index_9, success, turns in zip(
            scores.scenarios, scores.dialogues, index_D9, success_D, turns_D, strict=True
        )
    ]


def _figures(scores: Scores, config: EmpaConfig) -> dict[str, Any]:
    index_D9, turns_D = np.concatenate(scores.index_D9), np.concatenate(scores.turns_D)
    success_D = np.concatenate(scores.success_D)
    mean_9 = index_D9.mean(axis=0)
    drawn = scenario_bootstrap(
        np.column_stack([index_D9, turns_D, success_D]), scores.scenarios, resamples=config.resamples, seed=config.seed
    )
    score_B = epm_q(drawn[:, :9])
    return {
        "epm_q": float(epm_q(mean_9)),
        "dimensions": _named(tuple(DIMENSIONS), dimension_scores(mean_9)),
        "indices": _named(INDICES, mean_9),
        "success": int(success_D.sum()),
        "dialogues": len(success_D),
        "success_rate": float(success_D.mean()),
        "mean_turns": float(turns_D.mean()),
        "intervals": _intervals(score_B, drawn, success_D, config),
        "smallest_detectable_difference": {
            "epm_q": _detectable(standard_error(score_B), config),
            "success_rate": _detectable(max(standard_error(drawn[:, 10]), _wilson_error(success_D)), config),
        },
        "settings": config.scoring,
        "known_flaws": list(KNOWN_FLAWS),
    }


def _intervals(score_B: Floats, drawn: Floats, success_D: Flags, config: EmpaConfig) -> dict[str, Any]:
    """Bootstrap over scenarios for all but the success rate, which is Wilson's."""

    def of(value_B: Floats) -> dict[str, float]:
        return percentile_interval(value_B, config.confidence).to_json()

    by_dimension = dimension_scores(drawn[:, :9])
    return {
        "epm_q": of(score_B),
        "success_rate": wilson_interval(int(success_D.sum()), len(success_D), config.confidence).to_json(),
        "mean_turns": of(drawn[:, 9]),
        **{name: of(by_dimension[:, column]) for column, name in enumerate(DIMENSIONS)},
        **{name: of(drawn[:, column]) for column, name in enumerate(INDICES)},
    }


def _detectable(error: float, config: EmpaConfig) -> float:
    return smallest_detectable_difference(error, level=config.confidence, power=config.power)


def _wilson_error(success_D: Flags) -> float:
    """Standard error of a success rate that stays above 0 when all dialogues end alike (the bootstrap's does not)."""
    interval = wilson_interval(int(success_D.sum()), len(success_D), level=ONE_SIGMA)
    return (interval.high - interval.low) / 2


def _named(names: Sequence[str], values: Floats) -> dict[str, float]:
    return {name: float(value) for name, value in zip(names, values, strict=True)}
