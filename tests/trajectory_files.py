"""Small trajectory files, whole and broken, for the tests of files, stages and commands. Not a test module."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dialrl.trajectory.lineage import METADATA_KEY, Lineage, StageRecord
from dialrl.trajectory.reader import TrajectoryFile
from dialrl.trajectory.rows import rows_to_table
from dialrl.trajectory.writer import TrajectoryWriter

Row = dict[str, Any]


def row(group: str, sample: int = 0, turn: int = 0, **more: Any) -> Row:
    """One turn: the keys and ``more``."""
    return {"group_id": group, "sample": sample, "turn": turn, **more}


def turns(*lengths: int, group: str = "g", **more: Any) -> list[Row]:
    """One group whose dialogues have these numbers of turns; ``more`` stands on every row."""
    return [row(group, sample, turn, **more) for sample, length in enumerate(lengths) for turn in range(length)]


def judged(groups: Mapping[str, Sequence[Sequence[float]]]) -> list[Row]:
    """Judged dialogues on one axis: ``{group: [positions after each reply]}``, all from a deficit of -9."""
    return [
        row(
            group, sample, turn, scenario_id=group, environment="demo", reply="Yes.", status="ok", deficit=[-9.0],
            position=[position], increment=[position - (positions[turn - 1] if turn else -9.0)], judge_status="ok",
            position_estimated=False, end_reason="turn_limit" if turn + 1 == len(positions) else None,
            messages=[{"role": "user", "content": "Hello."}], grades=[{"indicator": "C.Prog", "level": 0}],
        )
        for group, dialogues in groups.items()
        for sample, positions in enumerate(dialogues)
        for turn, position in enumerate(positions)
    ]  # fmt: skip


def write(path: Path, rows: Sequence[Row], *stages: str, row_group_rows: int = 131_072) -> Path:
    """``rows`` as they stand (sorted or not) in a trajectory file with a record of each of ``stages``."""
    table = rows_to_table(rows)
    records = tuple(StageRecord(stage) for stage in stages or ("rollout",))
    with TrajectoryWriter(path, table.schema, row_group_rows=row_group_rows) as writer:
        writer.write(table)
        writer.finish(Lineage(records))
    return path


def write_raw(path: Path, table: pa.Table, metadata: Mapping[str, Any] | None) -> Path:
    """A Parquet file with any columns and any content of the metadata key."""
    if metadata is not None:
        table = table.replace_schema_metadata({METADATA_KEY: json.dumps(metadata).encode()})
    pq.write_table(table, path)
    return path


def keys(tables: Iterable[pa.Table] | TrajectoryFile) -> list[tuple[str, int, int]]:
    """(group, sample, turn) of every row."""
    read = tables.groups(["group_id", "sample", "turn"]) if isinstance(tables, TrajectoryFile) else tables
    return [(r["group_id"], r["sample"], r["turn"]) for table in read for r in table.to_pylist()]


def read(path: Path) -> list[Row]:
    """All rows of a file, slim ones joined."""
    return TrajectoryFile.open(path).read().to_pylist()


def column(path: Path, name: str) -> list[Any]:
    return [found[name] for found in read(path)]
