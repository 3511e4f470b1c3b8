"""Writes the runs of a study as its tidy table (``dialrl.evaluate.study_table``)."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dialrl.evaluate.study_table import SCHEMA
from dialrl.lab.runs import Phase, RunResult
from dialrl.trajectory.atomic import atomic_path


def write_table(path: Path, runs: Iterable[tuple[Phase, RunResult]]) -> None:
    """Write the runs, in the order given; the file appears only when complete."""
    rows = [row for phase, run in runs for row in _rows(phase, run)]
    with atomic_path(path) as temporary:
        pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), temporary, compression="zstd")


def _rows(phase: Phase, run: RunResult) -> Iterator[dict[str, Any]]:
    key, exact = run.key, run.reference
    for point in run.curve:
        yield {
            "tier": key.tier,
            "phase": phase,
            "setting": key.setting,
            "preset": key.preset,
            "step_size": key.step_size,
            "seed": key.seed,
            "seconds": run.seconds,
            "silent": exact.silent,
            "myopic": exact.myopic,
            "optimum": exact.optimum,
            "clairvoyant": exact.clairvoyant,
            "iteration": point.iteration,
            "dialogues": point.trained_dialogues,
            "turns": point.trained_turns,
            "value": point.value,
            "share": point.share,
            "revealed": point.revealed,
            "succeeded": point.succeeded,
            "length": point.turns,
            "entropy": point.entropy,
            "gradient_norm": point.gradient_norm,
        }
