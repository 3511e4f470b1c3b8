"""What ``dialrl inspect`` tells of a trajectory file: counts, statuses, figures, lineage; one dialogue; a whole copy.

Streams; never holds more than a batch. Not here: how any of it is printed.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dialrl.errors import InputError
from dialrl.trajectory.layout import Layout
from dialrl.trajectory.lineage import Lineage
from dialrl.trajectory.reader import TrajectoryFile
from dialrl.trajectory.schema import COLUMNS, DYNAMIC_COLUMNS, KEYS, column_for, schema_for
from dialrl.trajectory.writer import TrajectoryWriter, refuse_existing

_COUNTED = ("status", "finish_reason", "end_reason", "judge_status", "environment")
_IDS = ("prompt_ids", "reply_ids")


def overview(source: TrajectoryFile) -> dict[str, Any]:
    """Counts of groups, dialogues, turns, tokens; values of status columns; moments of number columns; lineage."""
    tally = _Tally(source.names)
    for table in source.groups(tally.reads):
        tally.add(table)
    return {
        "file": [str(shard.path) for shard in source.shards],
        "stage": source.stage,
        "slim": any(shard.parent is not None for shard in source.shards),
        **tally.figures(),
        "columns": source.names,
        "lineage": [asdict(record) for record in source.lineage.records],
    }


class _Tally:
    """Adds up what ``overview`` says, table by table."""

    def __init__(self, names: Sequence[str]) -> None:
        self._values = [name for name in _COUNTED if name in names]
        self._numbers = [n for n in names if pa.types.is_floating(column_for(n).type)]
        self._ids = [name for name in _IDS if name in names]
        self._flags = ["flags"] if "flags" in names else []
        self.reads = [*KEYS, *self._values, *self._numbers, *self._ids, *self._flags]
        self._counts: Counter[str] = Counter()
        self._seen: dict[str, Counter[str]] = {name: Counter() for name in (*self._values, *self._flags)}
        self._sums: dict[str, list[float]] = {name: [0, 0.0, 0.0, np.inf, -np.inf] for name in self._numbers}
        self._lengths: Counter[int] = Counter()

    def add(self, table: pa.Table) -> None:
        layout = Layout.of(table)
        self._counts.update(groups=layout.groups, dialogues=layout.dialogues, turns=layout.rows)
        self._lengths.update(layout.turns_D.tolist())
        for name in self._ids:
            self._counts[name.replace("_ids", "_tokens")] += int(pc.sum(pc.list_value_length(table[name])).as_py() or 0)
        for name in self._values:
            self._count_values(name, table[name])
        for name in self._flags:
            self._count_values(name, pc.list_flatten(table[name]))
        for name in self._numbers:
            self._add_numbers(name, table[name].drop_null().to_numpy())

    def _count_values(self, name: str, column: Any) -> None:
        for entry in pc.value_counts(column.drop_null()).to_pylist():
            self._seen[name][entry["values"]] += entry["counts"]

    def _add_numbers(self, name: str, values: Any) -> None:
        if len(values):
            held = self._sums[name]
            held[0] += len(values)
            held[1] += float(values.sum())
            held[2] += float((values**2).sum())
            held[3] = min(held[3], float(values.min()))
            held[4] = max(held[4], float(values.max()))

    def figures(self) -> dict[str, Any]:
        lengths = sorted(self._lengths.elements())
        return {
            "counts": dict(self._counts),
            "turns_per_dialogue": {"min": lengths[0], "median": lengths[len(lengths) // 2], "max": lengths[-1]},
            "values": {name: dict(counter.most_common()) for name, counter in self._seen.items()},
            "numbers": {name: _moments(sums) for name, sums in self._sums.items() if sums[0]},
        }


def _moments(sums: Sequence[float]) -> dict[str, float]:
    count, total, squares, low, high = sums
    mean = total / count
    return {
        "known": int(count),
        "mean": mean,
        "std": max(squares / count - mean * mean, 0.0) ** 0.5,
        "min": low,
        "max": high,
    }


def find_dialogue(source: TrajectoryFile, dialogue_id: str) -> list[dict[str, Any]]:
    """The rows of dialogue ``group_id/sample``, in order. Raises InputError naming a few that exist."""
    group, _, sample = dialogue_id.rpartition("/")
    some: list[str] = []
    for table in source.groups():
        mask = pc.equal(table["group_id"], group)
        if sample.isdigit() and (rows := table.filter(mask).to_pylist()):
            found = [row for row in rows if row["sample"] == int(sample)]
            if found:
                return found
            some = [f"{group}/{number}" for number in sorted({row["sample"] for row in rows})]
            break
        if len(some) < 3:
            some += [f"{g}/{s}" for g, s in _first_keys(table, 3)]
    raise InputError(f"{source.where} has no dialogue '{dialogue_id}'. It has, for example: {', '.join(some[:5])}.")


def _first_keys(table: pa.Table, count: int) -> list[tuple[str, int]]:
    layout = Layout.of(table)
    rows = layout.dialogue_start[:-1][:count]
    return list(zip(table["group_id"].take(rows).to_pylist(), table["sample"].take(rows).to_pylist(), strict=True))


def materialize(source: TrajectoryFile, output: Path, *, overwrite: bool = False) -> None:
    """Write a slim file together with all it completes as one whole file; also joins shards into one."""
    refuse_existing(output, overwrite=overwrite, resumable=False)
    with TrajectoryWriter(output, schema_for(source.names)) as writer:
        for table in source.groups():
            writer.write(table.select(writer.schema.names))
        writer.finish(Lineage(source.lineage.records))


def describe_schema(names: Sequence[str] | None = None) -> list[Mapping[str, str]]:
    """Name, type, stage, rows and meaning of ``names`` (default: every column there can be)."""
    known = [*COLUMNS.values(), *DYNAMIC_COLUMNS]
    columns = known if names is None else [column_for(name) for name in names]
    return [
        {"name": c.name, "type": str(c.type), "stage": c.stage, "rows": c.rows, "description": c.description}
        for c in columns
    ]
