"""Scope ``state``: which turns of a group were taken in the same state (GiGPO's anchor states, arXiv 2505.10978).

An anchor says what makes two turns the same state, *before* the policy speaks:

- ``observation``: what the policy last read (column messages), whatever went before, as the paper takes it;
- ``context``: everything said so far, so that only dialogues with the same words up to here are compared;
- ``position``: the judged state of the user (column position after the turn before, deficit at first);
- any other name: that column of the file, value by value.

A turn whose state is not known (null) is alone in its pool. Not here: what is compared within a pool.
"""

import hashlib
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from dialrl.advantage.terms import Term
from dialrl.config import nearest
from dialrl.errors import InputError
from dialrl.ragged import Ints, Scattered
from dialrl.trajectory.layout import Layout

_READS = {
    "observation": ("messages",),
    "context": ("messages", "reply"),
    "position": ("deficit", "position"),
}


def columns_of_anchor(anchor: str) -> tuple[str, ...]:
    """The columns that an anchor reads, beside the keys."""
    return _READS.get(anchor, (anchor,))


def refuse_absent_anchor(terms: Iterable[Term], names: Sequence[str], *, where: str) -> None:
    """Raise InputError when a term's anchor reads a column that is not among ``names``."""
    for term in terms:
        for column in columns_of_anchor(term.anchor) if term.anchor else ():
            if column not in names:
                meant = "" if term.anchor in _READS else nearest(column, (*_READS, *names))
                raise InputError(
                    f"{where} has no column '{column}', by which the term '{term.name}' tells states apart (anchor"
                    f" '{term.anchor}').{meant} Give --anchor {', '.join(_READS)}, or a column of the file."
                )


def state_pools(table: pa.Table, layout: Layout, anchor: str) -> Scattered:
    """Pools of the turns with the same group and the same state.

    Example, one group, last lines (a, b, a) and (a, c): pools {a: turns 0 and 2 of the first, 0 of the second}, {b},
    {c}.
    """
    number: dict[tuple[int, Hashable], int] = {}
    pool_K = np.empty(layout.rows, dtype=np.int64)
    for row, key in enumerate(_keys(table, layout, anchor)):
        group = int(layout.group_of_row[row])
        own = ("unknown", row) if key is None else ("known", key)
        pool_K[row] = number.setdefault((group, own), len(number))
    return Scattered(pool_K, len(number))


def _keys(table: pa.Table, layout: Layout, anchor: str) -> Iterable[Hashable]:
    """The state before each turn, None where it is not known."""
    if anchor == "context":
        return _contexts(table, layout.dialogue_start)
    if anchor == "position":
        return _positions(table, layout.dialogue_start)
    (column,) = columns_of_anchor(anchor)
    return (_frozen(value) for value in table[column].to_pylist())


def _contexts(table: pa.Table, dialogue_start: Ints) -> Iterator[Hashable]:
    """A digest of all words up to each turn; unknown from the first turn on whose messages or reply are not known."""
    messages, replies = table["messages"].to_pylist(), table["reply"].to_pylist()
    for first, stop in pairwise(dialogue_start.tolist()):
        so_far: bytes | None = b""
        for row in range(first, stop):
            so_far = _after(so_far, _frozen(messages[row]))
            yield so_far
            so_far = _after(so_far, replies[row])


def _after(so_far: bytes | None, said: Hashable) -> bytes | None:
    if so_far is None or said is None:
        return None
    return hashlib.blake2b(so_far + repr(said).encode(), digest_size=16).digest()


def _positions(table: pa.Table, dialogue_start: Ints) -> Iterator[Hashable]:
    deficits, positions = table["deficit"].to_pylist(), table["position"].to_pylist()
    for first, stop in pairwise(dialogue_start.tolist()):
        yield _frozen(deficits[first])
        yield from (_frozen(position) for position in positions[first : stop - 1])


def _frozen(value: object) -> Hashable:
    """Lists and structs as tuples, so that they can be compared as keys."""
    if isinstance(value, list):
        return tuple(_frozen(part) for part in value)
    if isinstance(value, dict):
        return tuple((name, _frozen(part)) for name, part in value.items())
    return value if isinstance(value, Hashable) else repr(value)
