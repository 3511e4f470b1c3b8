"""Small trajectory files for the tests of returns and advantage. Not a test module."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from dialrl.advantage.config import AdvantageConfig
from dialrl.advantage.stage import compute_advantages
from dialrl.returns.config import ReturnsConfig
from dialrl.returns.stage import compute_returns
from dialrl.summary import StageSummary
from dialrl.trajectory.lineage import Lineage, StageRecord
from dialrl.trajectory.reader import TrajectoryFile
from dialrl.trajectory.rows import rows_to_table
from dialrl.trajectory.writer import TrajectoryWriter

Groups = Mapping[str, Sequence[Sequence[float | None]]]
GIVEN = ("given",)

# The groups of docs/credit.md 2.
GOLDEN: Groups = {
    "g0": [(1.0, 0.5, 0.8), (0.3, 0.6)],
    "g1": [(0.7, -0.2, 0.9), (0.5, 0.8, 0.1)],
}


def rows_of(groups: Groups) -> list[dict[str, Any]]:
    """One row a turn with ``reward_given`` and the line before it; groups, dialogues and turns in order."""
    return [
        {
            "group_id": group,
            "sample": sample,
            "turn": turn,
            "dialogue_id": f"{group}/{sample}",
            "messages": [{"role": "user", "content": line_before(sample, turn)}],
            "reward_given": reward,
        }
        for group, dialogues in groups.items()
        for sample, rewards in enumerate(dialogues)
        for turn, reward in enumerate(rewards)
    ]


def line_before(sample: int, turn: int) -> str:
    """What the policy last read: p, q, p, q ... in every second dialogue, p, q, q, q ... in the others."""
    return "pq"[turn % 2 if sample % 2 == 0 else min(turn, 1)]


def write(path: Path, rows: Sequence[Mapping[str, Any]], *, row_group_rows: int = 131_072) -> Path:
    """``rows``, sorted, as a trajectory file."""
    ordered = sorted(rows, key=lambda row: (row["group_id"], row["sample"], row["turn"]))
    table = rows_to_table(ordered)
    with TrajectoryWriter(path, table.schema, row_group_rows=row_group_rows) as writer:
        writer.write(table)
        writer.finish(Lineage((StageRecord("rollout"),)))
    return path


def returns_of(source: Path | Sequence[Path], **options: Any) -> tuple[Path, StageSummary]:
    """``source`` through ``returns`` with channel ``given`` unless ``reward`` says otherwise."""
    first = source if isinstance(source, Path) else source[0]
    output = first.with_name(f"{first.stem}-returns.parquet")
    config = ReturnsConfig(**{"reward": GIVEN, **options})
    return output, compute_returns(source, output, config, overwrite=True)


def advantage_of(source: Path | Sequence[Path], **options: Any) -> tuple[list[dict[str, Any]], StageSummary]:
    """``source`` through ``advantage``: its rows and the summary."""
    first = source if isinstance(source, Path) else source[0]
    output = first.with_name(f"{first.stem}-advantage.parquet")
    summary = compute_advantages(source, output, AdvantageConfig(**options), overwrite=True)
    return read(output), summary


def credit(folder: Path, groups: Groups, *, returns: Mapping[str, Any] | None = None, **options: Any) -> Any:
    """Rewards through both stages: the advantages as {group: [[per turn] per dialogue]}."""
    source = write(folder / "turns.parquet", rows_of(groups))
    returned, _ = returns_of(source, **(returns or {}))
    rows, _ = advantage_of(returned, **options)
    return by_dialogue(rows, "advantage")


def read(path: Path) -> list[dict[str, Any]]:
    return TrajectoryFile.open(path).read().to_pylist()


def by_dialogue(rows: Sequence[Mapping[str, Any]], column: str) -> dict[str, list[list[Any]]]:
    """A column as {group: [[per turn] per dialogue]}."""
    found: dict[str, dict[int, list[Any]]] = {}
    for row in rows:
        found.setdefault(row["group_id"], {}).setdefault(row["sample"], []).append(row[column])
    return {group: list(dialogues.values()) for group, dialogues in found.items()}


def flat(nested: Any) -> list[Any]:
    """All numbers of nested lists or of a mapping of them, in order."""
    if isinstance(nested, Mapping):
        nested = list(nested.values())
    if isinstance(nested, (list, tuple)):
        return [value for part in nested for value in flat(part)]
    return [nested]


def rows_to_columns(table: pa.Table) -> dict[str, list[Any]]:
    """Every column as a Python list."""
    return {name: table[name].to_pylist() for name in table.column_names}
