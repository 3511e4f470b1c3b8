"""Lines of a JSON-lines file as checked objects, and an index by which they can be read again in any order.

Lines end at ``\\n`` alone: a text may hold U+2028 and its like. The file is read twice (an index first, the turns in
sorted order then), so memory holds numbers a line and never the texts. Not here: what the keys mean (``turns``).
"""

import json
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from dialrl.errors import InputError, MissingInputError

Json = dict[str, Any]
Key = tuple[str, int, int]


def _numbers() -> "array[int]":
    return array("q")


@dataclass
class LineIndex:
    """Where each turn stands: one entry a line, in file order."""

    path: Path
    groups: dict[str, int] = field(default_factory=dict)
    group: "array[int]" = field(default_factory=_numbers)
    sample: "array[int]" = field(default_factory=_numbers)
    turn: "array[int]" = field(default_factory=_numbers)
    offset: "array[int]" = field(default_factory=_numbers)
    line: "array[int]" = field(default_factory=_numbers)

    def add(self, key: Key, offset: int, line: int) -> None:
        group, sample, turn = key
        self.group.append(self.groups.setdefault(group, len(self.groups)))
        self.sample.append(sample)
        self.turn.append(turn)
        self.offset.append(offset)
        self.line.append(line)

    def __len__(self) -> int:
        return len(self.line)

    def sorted_groups(self) -> Iterator[list[int]]:
        """Entries of each group in order of (sample, turn), groups in order of name. Refuses a turn given twice."""
        rank = np.empty(len(self.groups), dtype=np.int64)
        rank[[self.groups[name] for name in sorted(self.groups)]] = np.arange(len(self.groups))
        group, sample, turn = rank[np.asarray(self.group)], np.asarray(self.sample), np.asarray(self.turn)
        order = np.lexsort((np.asarray(self.line), turn, sample, group))
        keys = np.stack([group, sample, turn], axis=1)[order]
        same = np.flatnonzero((keys[1:] == keys[:-1]).all(axis=1))
        if len(same):
            raise self._twice(int(order[same[0]]), int(order[same[0] + 1]))
        ends = np.append(np.flatnonzero(np.diff(keys[:, 0])) + 1, len(order))
        start = 0
        for end in ends.tolist():
            yield order[start:end].tolist()
            start = end

    def _twice(self, first: int, second: int) -> InputError:
        names = list(self.groups)
        return InputError(
            f"'{self.path}', lines {self.line[first]} and {self.line[second]} are the same turn: group_id"
            f" '{names[self.group[first]]}', sample {self.sample[first]}, turn {self.turn[first]}."
            " Expected each (group_id, sample, turn) once."
        )


def index_lines(path: Path, key_of: Callable[[Json, int], Key]) -> LineIndex:
    """Read ``path`` once: every line parsed and its key taken. Raises InputError naming file and line."""
    if not path.exists():
        raise MissingInputError(f"'{path}' does not exist. Give a file of JSON lines, one object a turn.")
    if path.is_dir():
        raise InputError(f"'{path}' is a folder; expected a file of JSON lines, one object a turn.")
    index = LineIndex(path)
    with path.open("rb") as handle:
        for number, offset, line in _numbered(handle):
            index.add(key_of(parse_line(line, path, number), number), offset, number)
    if not len(index):
        raise InputError(f"'{path}' holds no turns; expected JSON lines, one object a turn.")
    return index


def read_entry(index: LineIndex, handle: BinaryIO, entry: int) -> Json:
    """The object of one entry again."""
    handle.seek(index.offset[entry])
    return parse_line(handle.readline(), index.path, index.line[entry])


def _numbered(handle: BinaryIO) -> Iterator[tuple[int, int, bytes]]:
    """Line number from 1, byte offset and bytes of every line that is not blank."""
    offset = 0
    for number, line in enumerate(handle, start=1):
        if line.strip():
            yield number, offset, line
        offset += len(line)


def parse_line(line: bytes, path: Path, number: int) -> Json:
    """One line as an object. Raises InputError naming file, line and what is wrong."""
    where = f"'{path}', line {number}"
    try:
        text = line.decode("utf-8").removeprefix("\ufeff" if number == 1 else "")
        value = json.loads(text, object_pairs_hook=without_repeats, parse_constant=no_constant)
    except UnicodeDecodeError as error:
        raise InputError(f"{where} is not UTF-8 at byte {error.start}. Write the file as UTF-8.") from None
    except RepeatedKeyError as error:
        raise InputError(f"{where}: key '{error}' stands twice in one object; expected each key once.") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where} is not valid JSON ({error}). Expected one object a line.") from None
    if not isinstance(value, dict):
        raise InputError(f"{where} holds a {type(value).__name__}; expected one object a line, one line a turn.")
    return value


class RepeatedKeyError(Exception):
    """A key that stands twice in one JSON object; the key is the message."""


def without_repeats(pairs: list[tuple[str, Any]]) -> Json:
    """An ``object_pairs_hook`` that refuses a key given twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise RepeatedKeyError(next(name for name in names if names.count(name) > 1))
    return found


def no_constant(name: str) -> float:
    """A ``parse_constant`` that refuses NaN and infinity."""
    raise ValueError(f"it holds {name}, which is no JSON number; what is not known is null")
