"""The columns of a table of whole groups as numpy arrays, for channels to compute on.

null becomes NaN in numbers and vectors. Not here: what a channel makes of them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dialrl.errors import InputError
from dialrl.ragged import Flags, Floats, Ints
from dialrl.trajectory.layout import Layout, describe_row, floats


@dataclass(frozen=True)
class TurnBatch:
    """K turns of D whole dialogues in file order; ``until_end``: turns after ``stop_turn`` count too."""

    table: pa.Table
    layout: Layout
    until_end: bool = False

    @property
    def rows(self) -> int:
        return self.layout.rows

    def has(self, name: str) -> bool:
        """True when the column is there and not wholly null."""
        return name in self.table.column_names and self.table[name].null_count < self.rows

    def numbers(self, name: str) -> Floats:
        """A numeric column, (K,), null as NaN; all NaN when the file lacks it."""
        if not self.has(name):
            return np.full(self.rows, np.nan)
        return floats(self.table[name])

    def vectors(self, name: str) -> Floats:
        """A column of points, (K, A), null as NaN. Raises InputError when the points have different numbers of axes."""
        lists = self.table[name].combine_chunks()
        flat = np.asarray(lists.flatten().to_numpy(zero_copy_only=False), dtype=np.float64)
        known = self.rows - lists.null_count
        axes = len(flat) // known if known else 1
        if known * axes != len(flat) or not _all_of_length(lists, axes):
            raise self._ragged(name, lists)
        if known == self.rows:
            return flat.reshape(self.rows, axes)
        points = np.full((self.rows, axes), np.nan)
        points[lists.is_valid().to_numpy(zero_copy_only=False)] = flat.reshape(known, axes)
        return points

    def equals(self, name: str, value: str) -> Flags:
        """(K,) True where a text column is ``value``; null and an absent column are not."""
        if not self.has(name):
            return np.zeros(self.rows, dtype=np.bool_)
        return np.asarray(pc.fill_null(pc.equal(self.table[name], value), False).to_numpy(), dtype=np.bool_)

    def truths(self, name: str) -> Flags:
        """A true-or-false column, (K,); null and an absent column are False."""
        if not self.has(name):
            return np.zeros(self.rows, dtype=np.bool_)
        return np.asarray(pc.fill_null(self.table[name], False).to_numpy(), dtype=np.bool_)

    @cached_property
    def counted(self) -> Flags:
        """(K,) turns that count: all, or those up to the dialogue's ``stop_turn``."""
        if self.until_end or not self.has("stop_turn"):
            return np.ones(self.rows, dtype=np.bool_)
        stop_K = self.numbers("stop_turn")
        return np.isnan(stop_K) | (self.layout.turn <= stop_K)

    @cached_property
    def counted_turns(self) -> Ints:
        """(D,) turns of each dialogue that count."""
        if self.counted.all():
            return self.layout.turns_D
        return np.add.reduceat(self.counted.astype(np.int64), self.layout.dialogue_start[:-1])

    @cached_property
    def last_counted(self) -> tuple[Ints, Ints]:
        """Dialogues that have a counted turn, and the row of its last one."""
        dialogues = np.flatnonzero(self.counted_turns > 0)
        return dialogues, (self.layout.dialogue_start[:-1] + self.counted_turns - 1)[dialogues]

    def before(self, after_K: Floats, first: Callable[[Ints], Floats]) -> Floats:
        """Value before each turn: that after the turn before it; on a first row what ``first(rows)`` says."""
        before_K = np.empty_like(after_K)
        before_K[1:] = after_K[:-1]
        rows = self.layout.dialogue_start[:-1]
        before_K[rows] = first(rows)
        return before_K

    def name(self, row: int) -> str:
        """``dialogue 'g/s', turn t`` for errors."""
        return describe_row(self.table, row)

    def _ragged(self, name: str, lists: pa.ListArray) -> InputError:
        lengths = pc.list_value_length(lists).to_numpy(zero_copy_only=False)
        valid = ~np.isnan(lengths.astype(np.float64))
        expected = int(lengths[valid][0])
        row = int(np.flatnonzero(valid & (lengths != expected))[0])
        return InputError(
            f"Column '{name}' has {int(lengths[row])} axes in {self.name(row)}, but {expected} before it."
            " Every state of a file needs the same axes."
        )


def _all_of_length(lists: pa.ListArray, length: int) -> bool:
    sizes = np.diff(lists.offsets.to_numpy())
    if lists.null_count:
        sizes = sizes[lists.is_valid().to_numpy(zero_copy_only=False)]
    return bool((sizes == length).all())
