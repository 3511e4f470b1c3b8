"""Where groups and dialogues begin in a table that is sorted by (group_id, sample, turn).

Everything a vectorised stage needs to reduce over dialogues, turns and groups without a Python loop. Also the order
check. Not here: reading files.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dialrl.errors import InputError

Ints = npt.NDArray[np.int64]
LARGEST = 1e150


@dataclass(frozen=True)
class Layout:
    """Row offsets of a sorted table of N rows.

    ``group_start`` (G+1,) and ``dialogue_start`` (D+1,) are row offsets with a trailing N; ``sample`` and ``turn`` (N,)
    are the key columns.
    """

    group_start: Ints
    dialogue_start: Ints
    sample: Ints
    turn: Ints

    @classmethod
    def of(cls, table: pa.Table) -> "Layout":
        """Layout of ``table``; the columns group_id, sample and turn are read."""
        new_group = changes(table["group_id"])
        sample = integers(table["sample"])
        turn = integers(table["turn"])
        new_dialogue = new_group.copy()
        new_dialogue[1:] |= sample[1:] != sample[:-1]
        return cls(_offsets(new_group), _offsets(new_dialogue), sample, turn)

    @property
    def rows(self) -> int:
        return len(self.turn)

    @property
    def groups(self) -> int:
        return len(self.group_start) - 1

    @property
    def dialogues(self) -> int:
        return len(self.dialogue_start) - 1

    @cached_property
    def turns_D(self) -> Ints:
        """Rows of each dialogue (D,)."""
        return np.diff(self.dialogue_start)

    @cached_property
    def dialogue_of_row(self) -> Ints:
        """Index of each row's dialogue (N,)."""
        return np.repeat(np.arange(self.dialogues), self.turns_D)

    @cached_property
    def group_of_row(self) -> Ints:
        """Index of each row's group (N,)."""
        return np.repeat(np.arange(self.groups), np.diff(self.group_start))

    @cached_property
    def group_of_dialogue(self) -> Ints:
        """Index of each dialogue's group (D,)."""
        first_row = self.dialogue_start[:-1]
        return np.searchsorted(self.group_start, first_row, side="right") - 1

    @cached_property
    def last_row(self) -> Ints:
        """Row of each dialogue's last turn (D,)."""
        return self.dialogue_start[1:] - 1


def integers(column: pa.ChunkedArray) -> Ints:
    """An integer column without nulls as int64 (N,)."""
    if column.null_count:
        raise InputError(f"A key column (sample or turn) holds {column.null_count} nulls; every turn needs its key.")
    return np.asarray(_as_numpy(column), dtype=np.int64)


def floats(column: pa.ChunkedArray) -> npt.NDArray[np.float64]:
    """A numeric column as float64 (N,), null as NaN. The array may be read-only: it shares the column's memory."""
    return np.asarray(_as_numpy(column), dtype=np.float64)


def _as_numpy(column: pa.ChunkedArray) -> npt.NDArray[np.generic]:
    whole = column.chunk(0) if column.num_chunks == 1 else column
    return np.asarray(whole.to_numpy(zero_copy_only=False) if isinstance(whole, pa.Array) else whole.to_numpy())


def changes(column: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """(N,) True where a value differs from the one before; the first row is True."""
    flags = np.ones(len(column), dtype=np.bool_)
    if len(column) > 1:
        array = column.combine_chunks()
        flags[1:] = pc.not_equal(array.slice(1), array.slice(0, len(array) - 1)).to_numpy(zero_copy_only=False)
    return flags


def _offsets(starts: npt.NDArray[np.bool_]) -> Ints:
    return np.append(np.flatnonzero(starts), len(starts)).astype(np.int64)


def refuse_not_finite(table: pa.Table, names: Sequence[str], *, where: str) -> None:
    """Raise InputError for a value whose square is not finite, or a NaN, in the number columns ``names``.

    Pools need squares; a spread that overflowed would make every advantage 0. The message names dialogue and turn.
    """
    for name in names:
        column = table[name]
        if not pa.types.is_floating(column.type):
            continue
        finite = pc.less_equal(pc.abs(column), LARGEST)  # False for infinities and NaN too
        if pc.all(finite).as_py() is not False:
            continue
        row = int(pc.index(pc.fill_null(finite, True), False).as_py())
        raise InputError(
            f"{where}: column '{name}' is {column[row].as_py()} in {describe_row(table, row)}; expected a number of at"
            f" most {LARGEST:g} in size, or null where it is not known. Larger ones overflow a sum: scale them down."
        )


def describe_row(table: pa.Table, row: int) -> str:
    """``group g, sample s, turn t``: how errors name a row."""
    group, sample, turn = (table[name][row].as_py() for name in ("group_id", "sample", "turn"))
    return f"dialogue '{group}/{sample}', turn {turn}"


def check_order(table: pa.Table, layout: Layout, *, where: str) -> None:
    """Refuse a table that is not strictly sorted by (group_id, sample, turn), naming the first row out of order."""
    if layout.rows == 0:
        return
    firsts = table["group_id"].take(layout.group_start[:-1]).combine_chunks()
    names = firsts.to_pylist()
    for index in range(1, len(names)):
        if names[index] <= names[index - 1]:
            raise _disorder(table, int(layout.group_start[index]), where)
    inside = np.ones(layout.rows - 1, dtype=np.bool_)
    inside[layout.group_start[1:-1] - 1] = False
    steps = layout.sample[1:] - layout.sample[:-1]
    wrong = inside & ((steps < 0) | ((steps == 0) & (layout.turn[1:] <= layout.turn[:-1])))
    if wrong.any():
        raise _disorder(table, int(np.flatnonzero(wrong)[0]) + 1, where)


def _disorder(table: pa.Table, row: int, where: str) -> InputError:
    return InputError(
        f"{where} is not sorted by (group_id, sample, turn), or holds a turn twice: {describe_row(table, row)} comes"
        f" after {describe_row(table, row - 1)}. Sort it by writing its turns as JSON lines and running:"
        " dialrl import turns FILE.jsonl -o FILE.parquet"
    )
