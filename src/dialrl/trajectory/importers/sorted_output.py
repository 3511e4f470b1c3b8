"""Writes imported dialogues sorted by (group_id, sample, turn), whole groups at a time. Not here: any source format."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from dialrl.progress import Progress
from dialrl.trajectory.lineage import Lineage, StageRecord
from dialrl.trajectory.rows import rows_to_table
from dialrl.trajectory.schema import ordered, schema_for
from dialrl.trajectory.writer import TrajectoryWriter

Rows = list[dict[str, Any]]


def write_groups(
    groups: Iterable[Rows],
    output: Path,
    columns: Sequence[str],
    *,
    record: Callable[[], StageRecord],
    batch_rows: int,
    progress: Progress,
) -> None:
    """Write ``groups`` (the rows of one whole group each, in order) as one file; ``record`` is asked at the end."""
    names = ordered(columns)
    with TrajectoryWriter(output, schema_for(names)) as writer:
        held: Rows = []
        for group in groups:
            held += group
            if len(held) >= batch_rows:
                writer.write(rows_to_table(held, names))
                progress.advance(len(held))
                held = []
        if held:
            writer.write(rows_to_table(held, names))
            progress.advance(len(held))
        writer.finish(Lineage((record(),)))
