"""Reads trajectories (a file, a folder of shards, a slim file joined with its parent) as streams of whole groups.

Opening checks everything that can be wrong with an input and says so in one sentence; reading never holds more than a
batch and the largest group. Not here: writing, and what any column means.
"""

import hashlib
import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dialrl.errors import InputError, MissingInputError
from dialrl.trajectory.layout import Layout, check_order
from dialrl.trajectory.lineage import InputFile, Lineage
from dialrl.trajectory.schema import KEYS, STAGES, column_for, ordered, outlives, stage_of

BATCH_ROWS = 65_536

_IMPORTED = ("reward_given",)  # comes with the dialogues: no stage makes it


@dataclass(frozen=True)
class Shard:
    """One Parquet file of a trajectory; ``parent`` is the file that a slim one completes."""

    path: Path
    schema: pa.Schema
    lineage: Lineage
    rows: int
    parent: "Shard | None" = None

    @classmethod
    def open(cls, path: Path) -> "Shard":
        """Open and check one file. Raises InputError for everything that is not a readable trajectory file."""
        parquet = _open_parquet(path)
        lineage = Lineage.from_metadata(parquet.metadata.metadata, where=f"'{path}'")
        schema = parquet.schema_arrow.remove_metadata()
        _check_types(path, schema)
        parent = None if lineage.parent is None else _open_parent(path, lineage)
        rows = parquet.metadata.num_rows
        parquet.close()
        if parent is not None and parent.rows != rows:
            raise InputError(f"'{path}' completes '{parent.path}' but has {rows} rows where that has {parent.rows}.")
        return cls(path, schema, lineage, rows, parent)

    @cached_property
    def names(self) -> list[str]:
        """All columns: the parent's too, but for those that this file's stage made stale."""
        if self.parent is None:
            return list(self.schema.names)
        standing = [n for n in self.parent.names if outlives(column_for(n).stage, rerun=self._stage)]
        return ordered([*standing, *self.schema.names])

    @cached_property
    def records(self) -> Lineage:
        """The lineage of the whole chain."""
        before = () if self.parent is None else self.parent.records.outliving(self._stage)
        return Lineage((*before, *self.lineage.records))

    @property
    def _stage(self) -> str:
        """The stage that wrote a slim file."""
        stage = self.lineage.records[-1].stage if self.lineage.records else STAGES[-1]
        return stage if stage in STAGES else STAGES[-1]

    def field(self, name: str) -> pa.Field:
        return self.schema.field(name) if name in self.schema.names or self.parent is None else self.parent.field(name)

    def digest(self) -> str:
        return file_digest(self.path)

    def tables(self, columns: Sequence[str], batch_rows: int) -> Iterator[pa.Table]:
        """The rows in order as tables of ``batch_rows`` rows with exactly ``columns``."""
        own = [name for name in columns if name in self.schema.names]
        wanted = [name for name in columns if name not in own and name not in KEYS]
        if self.parent is None or not wanted:
            yield from _read_batches(self.path, columns, batch_rows)
            return
        mine = _read_batches(self.path, [*dict.fromkeys([*KEYS, *own])], batch_rows)
        theirs = self.parent.tables([*KEYS, *wanted], batch_rows)
        for left, right in zip(_even(mine, batch_rows), _even(theirs, batch_rows), strict=True):
            if not left.select(list(KEYS)).equals(right.select(list(KEYS))):
                raise InputError(f"'{self.path}' completes '{self.parent.path}' but their turns differ.")
            joined = {n: (left[n] if n in left.column_names else right[n]) for n in columns}
            yield pa.table(joined, schema=pa.schema([self.field(n) for n in columns]))


class TrajectoryFile:
    """A trajectory as a stage sees it: checked, and read as whole groups in order."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        self.shards = tuple(shards)

    @classmethod
    def open(
        cls, paths: Path | str | Sequence[Path | str], *, stage: str | None = None, needs: Sequence[str] = ()
    ) -> "TrajectoryFile":
        """Open a file, a directory of shards, or several of them.

        ``stage``: the input must have been through that stage. ``needs``: columns that must be there. Raises InputError
        (or MissingInputError) naming the file, what was expected and what to do.
        """
        shards = [Shard.open(path) for path in expand(paths)]
        first = shards[0]
        for shard in shards[1:]:
            if shard.names != first.names:
                extra = sorted(set(shard.names) ^ set(first.names)) or shard.names
                raise InputError(
                    f"'{shard.path}' and '{first.path}' have different columns: {', '.join(extra)}. Shards of one"
                    " trajectory have the same; the stages' files of an iteration are given one by one."
                )
        opened = cls(shards)
        opened._check(stage, needs)
        return opened

    @property
    def where(self) -> str:
        """How messages name this input."""
        if len(self.shards) == 1:
            return f"'{self.shards[0].path}'"
        return f"'{self.shards[0].path}' and {len(self.shards) - 1} more"

    @property
    def names(self) -> list[str]:
        return list(self.shards[0].names)

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([self.shards[0].field(name) for name in self.names])

    @property
    def stage(self) -> str:
        return stage_of(self.names)

    @property
    def lineage(self) -> Lineage:
        """The records of all shards: files given together may have been made apart (see ``agreement``)."""
        return Lineage.joined([shard.records for shard in self.shards])

    @property
    def num_rows(self) -> int:
        return sum(shard.rows for shard in self.shards)

    @cached_property
    def input_files(self) -> tuple[InputFile, ...]:
        """Names and digests for a lineage record."""
        return tuple(InputFile(shard.path.name, shard.digest()) for shard in self.shards)

    def digest(self) -> str:
        """The file's digest, or one over the shards' in order of name."""
        files = self.input_files
        if len(files) == 1:
            return files[0].digest
        return "sha256:" + hashlib.sha256("\n".join(f.digest for f in files).encode()).hexdigest()

    def groups(self, columns: Sequence[str] | None = None, batch_rows: int = BATCH_ROWS) -> Iterator[pa.Table]:
        """Tables of whole groups, about ``batch_rows`` rows each (more if one group is larger), in order, checked.

        ``columns`` default to all; the key columns are always read to find the groups.
        """
        wanted = self.names if columns is None else list(columns)
        reading = [*dict.fromkeys([*KEYS, *wanted])]
        for table in _merge([_Cursor(shard, reading, batch_rows) for shard in self.shards], batch_rows):
            yield table if reading == wanted else table.select(wanted)

    def read(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Everything at once: for small files and tests."""
        tables = list(self.groups(columns))
        wanted = self.names if columns is None else list(columns)
        return pa.concat_tables(tables) if tables else self.schema.empty_table().select(wanted)

    def _check(self, stage: str | None, needs: Sequence[str]) -> None:
        if self.num_rows == 0:
            raise InputError(
                f"{self.where} holds no turns: there is nothing to work on. Check the stage that wrote it."
            )
        if stage is not None and STAGES.index(self.stage) < STAGES.index(stage):
            raise InputError(
                f"{self.where} has been through '{self.stage}'; this needs a file that has been through '{stage}'."
                f" Run first: dialrl {STAGES[STAGES.index(self.stage) + 1]} {self.shards[0].path} -o OUTPUT"
            )
        absent = [name for name in needs if name not in self.names]
        if absent:
            writer = "dialrl import" if absent[0] in _IMPORTED else f"the stage '{column_for(absent[0]).stage}'"
            raise InputError(
                f"{self.where} lacks the column{'s' if len(absent) > 1 else ''} {', '.join(absent)}, which"
                f" {writer} writes. It has: {', '.join(self.names)}."
            )


def expand(paths: Path | str | Sequence[Path | str]) -> list[Path]:
    """Files behind ``paths``: a directory stands for its ``*.parquet`` files in order of name."""
    given = [Path(paths)] if isinstance(paths, (str, Path)) else [Path(path) for path in paths]
    files: list[Path] = []
    for path in given:
        if path.is_dir():
            inside = sorted(p for p in path.glob("*.parquet") if not p.name.startswith("."))
            if not inside:
                raise InputError(f"The folder '{path}' holds no *.parquet file; expected the shards of a trajectory.")
            files += inside
        elif path.exists():
            files.append(path)
        else:
            raise MissingInputError(f"'{path}' does not exist. Give a trajectory file or a folder of shards.")
    if not files:
        raise InputError("No input was given. Give a trajectory file or a folder of shards.")
    return files


def file_digest(path: Path) -> str:
    """``sha256:...`` of a file's bytes."""
    with path.open("rb") as handle:
        return "sha256:" + hashlib.file_digest(handle, "sha256").hexdigest()


def _open_parquet(path: Path) -> pq.ParquetFile:
    if path.stat().st_size == 0:
        raise InputError(f"'{path}' is empty (0 bytes). Write it again with the stage that makes it.")
    try:
        return pq.ParquetFile(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(
            f"'{path}' is not a Parquet file, or a truncated one ({str(error).splitlines()[0]})."
            " Expected a trajectory file; write it again with the stage that makes it."
        ) from None


def _check_types(path: Path, schema: pa.Schema) -> None:
    missing = [key for key in KEYS if key not in schema.names]
    if missing:
        raise InputError(f"'{path}' lacks the key column{'s' if len(missing) > 1 else ''} {', '.join(missing)}.")
    for field in schema:
        try:
            expected = column_for(field.name).type
        except InputError as error:
            raise InputError(f"'{path}': {error}") from None
        if field.type != expected:
            raise InputError(f"'{path}', column '{field.name}' has type {field.type}; expected {expected}.")


def _open_parent(path: Path, lineage: Lineage) -> Shard:
    parent = lineage.parent
    if parent is None:  # pragma: no cover - guarded by the caller
        raise InputError(f"'{path}' is no slim file.")
    place = (path.parent / parent.path).resolve()
    if not place.is_file():
        raise MissingInputError(
            f"'{path}' is a slim file that completes '{parent.path}', which is not there. Put that file back beside it,"
            " or write this one again without --slim."
        )
    found = file_digest(place)
    if found != parent.digest:
        raise InputError(
            f"'{path}' completes '{place}' with digest {parent.digest}, but that file now has {found}."
            " It was written again since; write this one again too."
        )
    return Shard.open(place)


def _read_batches(path: Path, columns: Sequence[str], batch_rows: int) -> Iterator[pa.Table]:
    # Buffering ahead would keep every byte that was read until the end: memory would grow with the file.
    with pq.ParquetFile(path, pre_buffer=False, page_checksum_verification=True) as parquet:
        try:
            for batch in parquet.iter_batches(batch_size=batch_rows, columns=list(columns)):
                yield pa.Table.from_batches([batch]).select(list(columns)).replace_schema_metadata(None)
        except (pa.ArrowInvalid, OSError) as error:
            raise InputError(f"'{path}' is damaged: {str(error).splitlines()[0]}. Write it again.") from None


def _even(tables: Iterable[pa.Table], rows: int) -> Iterator[pa.Table]:
    """The same rows in tables of exactly ``rows`` rows (the last may be shorter)."""
    held: list[pa.Table] = []
    count = 0
    for table in tables:
        held.append(table)
        count += table.num_rows
        while count >= rows:
            whole = pa.concat_tables(held)
            yield whole.slice(0, rows)
            held, count = [whole.slice(rows)], count - rows
    if count:
        yield pa.concat_tables(held)


class _Cursor:
    """Reads one shard as tables of whole groups, remembering the first group of the table at hand."""

    def __init__(self, shard: Shard, columns: Sequence[str], batch_rows: int) -> None:
        self.shard = shard
        self._tables = self._whole_groups(columns, batch_rows)
        self.table: pa.Table | None = next(self._tables, None)

    @property
    def first(self) -> str:
        return "" if self.table is None else str(self.table["group_id"][0].as_py())

    @property
    def last(self) -> str:
        return "" if self.table is None else str(self.table["group_id"][-1].as_py())

    def take(self, rows: int | None = None) -> pa.Table:
        """The next ``rows`` rows of the table at hand (all of it by default); moves on."""
        if self.table is None:
            raise InputError(f"'{self.shard.path}' has no more rows.")
        taken = self.table if rows is None else self.table.slice(0, rows)
        rest = None if rows is None or rows >= self.table.num_rows else self.table.slice(rows)
        self.table = rest if rest is not None else next(self._tables, None)
        return taken

    def _whole_groups(self, columns: Sequence[str], batch_rows: int) -> Iterator[pa.Table]:
        where = f"'{self.shard.path}'"
        held: pa.Table | None = None
        for batch in self.shard.tables(columns, batch_rows):
            table = batch if held is None else pa.concat_tables([held, batch])
            layout = Layout.of(table)
            check_order(table, layout, where=where)
            cut = int(layout.group_start[-2])
            if cut > 0:
                yield table.slice(0, cut)
            held = table.slice(cut)
        if held is not None and held.num_rows:
            yield held


def _merge(cursors: Sequence[_Cursor], batch_rows: int) -> Iterator[pa.Table]:
    """Tables of all shards in group order; interleaved shards are merged group by group, a group in two is refused."""
    heap = [(cursor.first, index) for index, cursor in enumerate(cursors) if cursor.table is not None]
    heapq.heapify(heap)
    previous, owner = "", -1
    pending = _Coalescer(batch_rows)
    while heap:
        first, index = heapq.heappop(heap)
        cursor = cursors[index]
        if owner >= 0 and first <= previous:
            if owner != index:
                raise InputError(
                    f"Group '{first}' stands in '{cursors[owner].shard.path}' and '{cursor.shard.path}';"
                    " a group never crosses shards. Bring both in through: dialrl import turns"
                )
            raise InputError(f"'{cursor.shard.path}' is not sorted: group '{first}' comes again after '{previous}'.")
        limit = heap[0][0] if heap else None
        piece = cursor.take(None if limit is None or cursor.last < limit else _rows_before(cursor, limit))
        previous, owner = str(piece["group_id"][-1].as_py()), index
        yield from pending.add(piece)
        if cursor.table is not None:
            heapq.heappush(heap, (cursor.first, index))
    yield from pending.rest()


def _rows_before(cursor: _Cursor, limit: str) -> int:
    """Rows of the table at hand whose group comes before ``limit`` (at least one group)."""
    if cursor.table is None:
        return 0
    layout = Layout.of(cursor.table)
    names: list[str] = cursor.table["group_id"].take(layout.group_start[:-1]).to_pylist()
    groups = next((i for i, name in enumerate(names) if i > 0 and name >= limit), len(names))
    return int(layout.group_start[groups])


class _Coalescer:
    """Joins small pieces of whole groups until there are about ``rows`` rows."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._held: list[pa.Table] = []
        self._count = 0

    def add(self, table: pa.Table) -> Iterator[pa.Table]:
        if self._held and self._count + table.num_rows > self._rows:
            yield from self.rest()
        self._held.append(table)
        self._count += table.num_rows

    def rest(self) -> Iterator[pa.Table]:
        if self._held:
            yield pa.concat_tables(self._held)
        self._held, self._count = [], 0
