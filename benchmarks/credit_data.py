"""Synthetic judged dialogues for the credit benchmark: G groups x 8 dialogues x 5 turns, three axes, no text."""

from pathlib import Path

import numpy as np
import pyarrow as pa

from dialrl.trajectory.lineage import Lineage, StageRecord
from dialrl.trajectory.schema import schema_for
from dialrl.trajectory.writer import TrajectoryWriter

SAMPLES, TURNS, AXES = 8, 5, 3
COLUMNS = (
    "group_id",
    "sample",
    "turn",
    "dialogue_id",
    "deficit",
    "increment",
    "position",
    "position_estimated",
    "judge_status",
    "stop_turn",
)
_GROUPS_A_PIECE = 2_000


def write_judged(path: Path, turns: int, seed: int = 0) -> None:
    """Write ``turns`` judged turns (rounded down to whole groups) as one trajectory file."""
    generator = np.random.default_rng(seed)
    groups = turns // (SAMPLES * TURNS)
    schema = schema_for(COLUMNS)
    with TrajectoryWriter(path, schema) as writer:
        for first in range(0, groups, _GROUPS_A_PIECE):
            writer.write(_piece(generator, first, min(_GROUPS_A_PIECE, groups - first), schema))
        writer.finish(Lineage((StageRecord("rollout", seed=seed), StageRecord("judge"))))


def _piece(generator: np.random.Generator, first: int, groups: int, schema: pa.Schema) -> pa.Table:
    rows = groups * SAMPLES * TURNS
    names = pa.array([f"card-{number:07d}" for number in range(first, first + groups)])
    group_of_row = np.repeat(np.arange(groups), SAMPLES * TURNS)
    sample = np.tile(np.repeat(np.arange(SAMPLES, dtype=np.int32), TURNS), groups)
    deficit_GA = -generator.integers(5, 25, (groups, AXES)).astype(np.float64)
    increment_KA = generator.integers(-3, 4, (rows, AXES)).astype(np.float64)
    position_KA = increment_KA.reshape(-1, TURNS, AXES).cumsum(axis=1).reshape(rows, AXES) + deficit_GA[group_of_row]
    ids = pa.array([f"card-{g:07d}/{s}" for g in range(first, first + groups) for s in range(SAMPLES)])
    columns = {
        "group_id": names.take(pa.array(group_of_row)),
        "sample": sample,
        "turn": np.tile(np.arange(TURNS, dtype=np.int32), groups * SAMPLES),
        "dialogue_id": ids.take(pa.array(np.repeat(np.arange(groups * SAMPLES), TURNS))),
        "deficit": _lists(deficit_GA[group_of_row]),
        "increment": _lists(increment_KA),
        "position": _lists(position_KA),
        "position_estimated": pa.repeat(pa.scalar(False), rows),
        "judge_status": pa.repeat(pa.scalar("ok"), rows),
        "stop_turn": pa.nulls(rows, pa.int32()),
    }
    return pa.table(columns, schema=schema)


def _lists(points_KA: np.ndarray) -> pa.Array:
    offsets = np.arange(0, points_KA.size + 1, points_KA.shape[1], dtype=np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(points_KA.reshape(-1)))
