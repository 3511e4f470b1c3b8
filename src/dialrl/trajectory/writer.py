"""Writes trajectory files: explicit schema, zstd, row groups that no dialogue crosses, visible only when complete."""

from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dialrl.errors import OutputExistsError, RunError
from dialrl.trajectory.atomic import prepared_alone, publish, refuse_place, temporary_sibling, writing
from dialrl.trajectory.layout import Ints, Layout
from dialrl.trajectory.lineage import Lineage

ROW_GROUP_ROWS = 131_072
_REPETITIVE = (
    "group_id", "dialogue_id", "scenario_id", "environment", "finish_reason", "policy_digest", "policy_step",
    "status", "end_reason", "judge_status", "stop_turn",
)  # fmt: skip


def refuse_existing(output: Path, *, overwrite: bool, resumable: bool = True) -> None:
    """Raise OutputExistsError when ``output`` exists and may not be replaced; only regular files ever may.

    ``resumable``: whether the command that writes it has --resume to advise.
    """
    if output.exists() and not output.is_file():
        kind = "a folder" if output.is_dir() else "no regular file"
        raise OutputExistsError(f"The output '{output}' is {kind}, which is never replaced. Name a file.")
    refuse_place(output)
    if output.exists() and not overwrite:
        ways = "--overwrite to replace or --resume to continue it" if resumable else "--overwrite to replace it"
        raise OutputExistsError(f"The output '{output}' exists. Name another one, or use {ways}.")


class TrajectoryWriter:
    """Writes tables of whole groups, in order; ``path`` appears when the ``with`` block is left without error.

    The lineage is given at the end (``finish``), so that it can hold the counts of what was written.
    """

    def __init__(self, path: Path, schema: pa.Schema, *, row_group_rows: int = ROW_GROUP_ROWS) -> None:
        self.path = path
        self.schema = schema.remove_metadata()
        self._row_group_rows = row_group_rows
        self._temporary = temporary_sibling(path)
        self._held: list[pa.Table] = []
        self._count = 0
        self._lineage: Lineage | None = None
        self._alone = ExitStack()
        with writing(path):
            self._alone.enter_context(prepared_alone(path))
            self._writer = self._open()

    def _open(self) -> pq.ParquetWriter:
        names = [name for name in self.schema.names if name in _REPETITIVE or name.endswith("_status")]
        return pq.ParquetWriter(
            self._temporary,
            self.schema,
            compression="zstd",
            compression_level=1,
            write_page_checksum=True,
            use_dictionary=names,
            write_statistics=[name for name in ("group_id", "sample", "turn") if name in self.schema.names],
        )

    def write(self, table: pa.Table) -> None:
        """Append whole groups. Raises WriteError when the disk does not take them."""
        self._held.append(table.select(self.schema.names).cast(self.schema))
        self._count += table.num_rows
        if self._count >= self._row_group_rows:
            with writing(self.path):
                self._flush(final=False)

    def finish(self, lineage: Lineage) -> None:
        """Say what the file's lineage is; without it leaving the block is an error."""
        self._lineage = lineage

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._alone, writing(self.path):
            try:
                if kind is None:
                    self._close()
            finally:
                with suppress(OSError):  # what ended the block is the error to tell
                    self._writer.close()
                with suppress(OSError):
                    self._temporary.unlink(missing_ok=True)

    def _close(self) -> None:
        if self._lineage is None:
            raise RunError(f"'{self.path}' was written without a lineage; call finish() before leaving the block.")
        self._flush(final=True)
        self._writer.add_key_value_metadata(self._lineage.to_metadata())
        self._writer.close()
        publish(self._temporary, self.path)

    def _flush(self, *, final: bool) -> None:
        if not self._held:
            return
        table = pa.concat_tables(self._held)
        cuts = Layout.of(table).dialogue_start
        start = 0
        while table.num_rows - start >= self._row_group_rows or (final and start < table.num_rows):
            end = _cut(cuts, start, self._row_group_rows)
            self._writer.write_table(table.slice(start, end - start), row_group_size=end - start)
            start = end
        rest = table.slice(start)
        self._held, self._count = ([rest] if rest.num_rows else []), rest.num_rows


def _cut(dialogue_start: Ints, start: int, rows: int) -> int:
    """End of the row group that begins at ``start``: the last dialogue boundary within ``rows`` rows, or the next."""
    last = int(np.searchsorted(dialogue_start, start + rows, side="right")) - 1
    if dialogue_start[last] <= start:
        last += 1
    return int(dialogue_start[last])
