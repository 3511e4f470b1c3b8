"""Rows (one mapping a policy turn) to Arrow tables under the explicit schema, and back.

For stages that make turns one by one (rollout, imports, judge). Vectorised stages work on tables and never come here.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from dialrl.errors import InputError
from dialrl.trajectory.schema import field_for, ordered

Row = Mapping[str, Any]


def rows_to_table(rows: Sequence[Row], columns: Sequence[str] | None = None) -> pa.Table:
    """``rows`` as a table with ``columns`` (default: every column that any row has), absent values null.

    Raises InputError naming dialogue, turn and column for a value that does not fit, a NaN, or a lone surrogate.
    """
    names = ordered({name for row in rows for name in row}) if columns is None else list(columns)
    return pa.table({name: _array(rows, name) for name in names}, schema=pa.schema([field_for(n) for n in names]))


def unstorable(rows: Sequence[Row]) -> InputError | None:
    """What keeps ``rows`` out of a file, or None."""
    try:
        rows_to_table(rows)
    except InputError as error:
        return error
    return None


def _array(rows: Sequence[Row], name: str) -> pa.Array:
    field = field_for(name)
    values = [row.get(name) for row in rows]
    try:
        array = pa.array(values, type=field.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, UnicodeEncodeError, OverflowError):
        raise _misfit(rows, name, field.type) from None
    if not _is_of_kind(values, field.type):
        raise _misfit(rows, name, field.type)
    if array.null_count and not field.nullable:
        bad = next(row for row in rows if row.get(name) is None)
        raise InputError(f"{row_name(bad)}, column '{name}' is null; every row needs its keys.")
    _refuse_nan(array, rows, name)
    return array


def _is_of_kind(values: Sequence[Any], kind: pa.DataType) -> bool:
    """False where Arrow would take a value and change it: 1.5 as 1, true as 1, a struct without an unknown field."""
    known = [value for value in values if value is not None]
    if pa.types.is_list(kind):
        return _is_of_kind(list(chain.from_iterable(known)), kind.value_type)
    if pa.types.is_struct(kind):
        names = {field.name for field in kind}
        fields = all(set(value) <= names for value in known)
        return fields and all(_is_of_kind([value.get(f.name) for value in known], f.type) for f in kind)
    return not any(issubclass(given, _foreign(kind)) for given in set(map(type, known)))


def _foreign(kind: pa.DataType) -> tuple[type, ...]:
    """Python types that Arrow would convert to ``kind``, and that are none."""
    if pa.types.is_integer(kind):
        return (bool, np.bool_, float, np.floating)
    return (bytes,) if pa.types.is_string(kind) else (bool, np.bool_) if pa.types.is_floating(kind) else ()


def _misfit(rows: Sequence[Row], name: str, kind: pa.DataType) -> InputError:
    for row in rows:
        expected = f"{row_name(row)}, column '{name}' got {row.get(name)!r:.200}; expected {kind}."
        try:
            pa.array([row.get(name)], type=kind)
        except UnicodeEncodeError:
            return InputError(
                f"{row_name(row)}, column '{name}' holds a lone surrogate, which is no text. Mend the source."
            )
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            return InputError(expected)
        if not _is_of_kind([row.get(name)], kind):
            return InputError(expected)
    return InputError(f"Column '{name}' does not fit {kind}.")


def _refuse_nan(array: pa.Array, rows: Sequence[Row], name: str) -> None:
    flat = array
    while pa.types.is_list(flat.type):
        flat = flat.flatten()
    if not pa.types.is_floating(flat.type) or len(flat) == 0:
        return
    sums = flat.is_nan()
    if not sums.true_count:
        return
    bad = next(row for row in rows if _has_nan(row.get(name)))
    raise InputError(f"{row_name(bad)}, column '{name}' holds NaN. What is not known is null in a trajectory file.")


def _has_nan(value: Any) -> bool:
    if isinstance(value, float):
        return math.isnan(value)
    return isinstance(value, (list, tuple)) and any(_has_nan(item) for item in value)


def storable(text: str) -> str:
    """``text`` with lone surrogates as U+FFFD: error messages and judges' words may hold them, files may not."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def row_name(row: Row) -> str:
    """``dialogue 'g/s', turn t``: how errors name a row."""
    return f"dialogue '{row.get('group_id')}/{row.get('sample')}', turn {row.get('turn')}"


def table_to_dialogues(table: pa.Table) -> Iterator[list[dict[str, Any]]]:
    """The rows of ``table`` as one list a dialogue, in order."""
    held: list[dict[str, Any]] = []
    for batch in table.to_batches(max_chunksize=4096):
        for row in batch.to_pylist():
            if held and (held[-1]["group_id"], held[-1]["sample"]) != (row["group_id"], row["sample"]):
                yield held
                held = []
            held.append(row)
    if held:
        yield held
