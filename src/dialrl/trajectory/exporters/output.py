"""Writes exported examples as JSON lines or Parquet, one by one; the file appears only when complete."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TextIO

import pyarrow as pa
import pyarrow.parquet as pq

from dialrl.trajectory.atomic import atomic_path

_HELD = 2_000  # examples written to Parquet at a time


class Sink(Protocol):
    """Takes examples."""

    def add(self, example: Mapping[str, Any]) -> None:
        """One more."""


@contextmanager
def json_lines(path: Path) -> Iterator[Sink]:
    r"""A file of JSON lines in UTF-8, ended by ``\n`` alone."""
    with atomic_path(path) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as handle:
        yield _Lines(handle)


@contextmanager
def parquet(path: Path, schema: pa.Schema) -> Iterator[Sink]:
    """A Parquet file of ``schema``."""
    with atomic_path(path) as temporary, pq.ParquetWriter(temporary, schema, compression="zstd") as writer:
        rows = _Rows(writer, schema)
        yield rows
        rows.flush()


class _Lines:
    def __init__(self, handle: TextIO) -> None:
        self._handle = handle

    def add(self, example: Mapping[str, Any]) -> None:
        self._handle.write(json.dumps(example, ensure_ascii=False, allow_nan=False) + "\n")


class _Rows:
    def __init__(self, writer: pq.ParquetWriter, schema: pa.Schema) -> None:
        self._writer, self._schema = writer, schema
        self._held: list[Mapping[str, Any]] = []

    def add(self, example: Mapping[str, Any]) -> None:
        self._held.append(example)
        if len(self._held) >= _HELD:
            self.flush()

    def flush(self) -> None:
        self._writer.write_table(pa.Table.from_pylist(self._held, schema=self._schema))
        self._held = []
