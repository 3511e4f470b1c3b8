"""A judge's work on a file in blocks of whole groups: each kept when done, so that a killed run goes on after it.

What every kind of judge that adds columns has in common. Not here: what is computed (``stage``, ``reference_kl``,
``safety``).
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from dialrl.judge.config import JudgeConfig
from dialrl.progress import Progress
from dialrl.trajectory.lineage import StageRecord
from dialrl.trajectory.parts import Parts
from dialrl.trajectory.reader import TrajectoryFile
from dialrl.trajectory.rows import rows_to_table, table_to_dialogues
from dialrl.trajectory.schema import KEYS
from dialrl.trajectory.transform import transform

Row = dict[str, Any]


class Blocks:
    """The columns ``writes`` of ``output``, made from the columns ``reads`` of ``source``.

    ``made_from``: digests, beside the options and the input, that the result depends on. Raises OutputExistsError for
    an output that is there, UsageError for an unfinished one that was begun otherwise.
    """

    def __init__(
        self,
        source: TrajectoryFile,
        output: Path,
        config: JudgeConfig,
        *,
        reads: Sequence[str],
        writes: Sequence[str],
        made_from: Mapping[str, Any],
        overwrite: bool,
        resume: bool,
    ) -> None:
        self._source, self._output, self._config = source, output, config
        self._reads = [name for name in dict.fromkeys([*KEYS, *reads]) if name in source.names]
        self._writes = tuple(writes)
        identity = {"options": config.semantic_values(), "input": source.digest(), "made_from": dict(made_from)}
        self._parts = Parts(output, identity, overwrite=overwrite, resume=resume)
        self._replaces = overwrite or resume
        self._starts: list[int] = []

    @property
    def journal_path(self) -> Path:
        """Where external calls are journalled."""
        return self._parts.journal_path

    def compute(self, work: Callable[[Sequence[list[Row]]], Sequence[Row]], progress: Progress) -> None:
        """Let ``work`` make the rows (keys and ``writes``) of each block's dialogues, unless the block is there.

        Blocks are numbered by their first row, so that another ``batch_rows`` takes those that still fit.
        """
        start = 0
        progress.start("judge", self._source.num_rows, "turns")
        for table in self._source.groups(self._reads, self._config.batch_rows):
            if self._parts.rows(start) != table.num_rows:
                rows = work(list(table_to_dialogues(table)))
                self._parts.write(start, rows_to_table(rows, [*KEYS, *self._writes]))
            self._starts.append(start)
            start += table.num_rows
            progress.advance(table.num_rows)

    def publish(self, count: Callable[[pa.Table], None], record: Callable[[], StageRecord], *, slim: bool) -> None:
        """Write the output; ``count`` sees every block first, ``record`` is asked last."""
        blocks = iter(self._starts)

        def columns(_: pa.Table) -> Mapping[str, pa.ChunkedArray]:
            table = self._parts.read(next(blocks))
            count(table)
            return {name: table[name] for name in self._writes}

        transform(
            self._source,
            self._output,
            stage="judge",
            adds=self._writes,
            reads=(),
            compute=columns,
            record=record,
            slim=slim,
            overwrite=self._replaces,
            batch_rows=self._config.batch_rows,
        )
        self._parts.clear()
