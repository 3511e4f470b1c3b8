"""JSON values to values of a column's type, without silent conversions. Not here: files, lines, dialogues.

A number may stand as text (``"4"``) where the column is a number; nothing else is converted. A boolean is no number, a
number is no text, and what cannot be stored exactly (a fraction in a whole-number column, NaN, a lone surrogate) is a
fault.
"""

import math
import re
from typing import Any

import pyarrow as pa

from dialrl.config import nearest

LONGEST_INTEGER = 30  # characters; no column holds more, and a longer one is refused as what it is: too large
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?")
REQUIRED_IN_MESSAGE = ("role", "content")


class MisfitError(Exception):
    """A value that does not fit; ``path`` leads to it (``messages[0].content``), ``problem`` says why."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem


def convert(value: Any, kind: pa.DataType, path: str) -> Any:
    """``value`` as Arrow takes it for ``kind``; null stays null. Raises MisfitError."""
    if value is None:
        return None
    if pa.types.is_list(kind):
        return _list(value, kind, path)
    if pa.types.is_struct(kind):
        return _struct(value, kind, path)
    if pa.types.is_boolean(kind):
        return _boolean(value, path)
    if pa.types.is_integer(kind):
        return _integer(value, kind, path)
    return _number(value, path) if pa.types.is_floating(kind) else _text(value, path)


def _list(value: Any, kind: pa.DataType, path: str) -> list[Any]:
    if not isinstance(value, list):
        raise MisfitError(path, f"got {_shown(value)}; expected a list")
    items = [convert(item, kind.value_type, f"{path}[{place}]") for place, item in enumerate(value)]
    if None in items:
        raise MisfitError(f"{path}[{items.index(None)}]", "got null; a list holds known values, or is null as a whole")
    return items


def _struct(value: Any, kind: pa.DataType, path: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise MisfitError(path, f"got {_shown(value)}; expected an object")
    fields = {kind.field(place).name: kind.field(place).type for place in range(kind.num_fields)}
    unknown = next((key for key in value if key not in fields), None)
    if unknown is not None:
        known = f"{nearest(unknown, fields)} Known: {', '.join(fields)}"
        raise MisfitError(path, f"unknown key '{_printable(unknown)}'.{known}")
    if set(REQUIRED_IN_MESSAGE) <= set(fields):
        absent = next((key for key in REQUIRED_IN_MESSAGE if value.get(key) is None), None)
        if absent is not None:
            raise MisfitError(path, f"a message needs '{absent}'")
    return {name: convert(value.get(name), one, f"{path}.{name}") for name, one in fields.items()}


def _boolean(value: Any, path: str) -> bool:
    if not isinstance(value, bool):
        raise MisfitError(path, f"got {_shown(value)}; expected true or false")
    return value


def _integer(value: Any, kind: pa.DataType, path: str) -> int:
    number = _parsed(value, path, "a whole number")
    if isinstance(number, float):
        if not number.is_integer():
            raise MisfitError(path, f"got {_shown(value)}; expected a whole number")
        number = int(number)
    limit = 2 ** (kind.bit_width - 1)
    if not -limit <= number < limit:
        raise MisfitError(path, f"got {_shown(value)}, which does not fit {kind}")
    return number


def _number(value: Any, path: str) -> float:
    number = _parsed(value, path, "a number")
    try:
        as_float = float(number)
    except OverflowError:
        as_float = math.inf
    if not math.isfinite(as_float):
        raise MisfitError(path, f"got {_shown(value)}; expected a finite number, or null for what is not known")
    return as_float


def _parsed(value: Any, path: str, expected: str) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise MisfitError(path, f"got {_shown(value)}; expected {expected}")
    if not isinstance(value, str):
        return value
    text = value.strip()
    if not _NUMBER.fullmatch(text):
        raise MisfitError(path, f"got the text {_shown(value)}; expected {expected}")
    return int(text) if text.lstrip("+-").isdigit() and len(text) < LONGEST_INTEGER else float(text)


def _text(value: Any, path: str) -> str:
    if not isinstance(value, str):
        raise MisfitError(path, f"got {_shown(value)}; expected text in quotes")
    if not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError as error:
            where = f"at character {error.start}"
            raise MisfitError(path, f"holds a lone surrogate {where}, which is no text; mend the source") from None
    return value


def _shown(value: Any) -> str:
    text = _printable(repr(value))
    return text if len(text) <= 60 else text[:57] + "..."


def _printable(text: str) -> str:
    return text.encode("ascii", "backslashreplace").decode("ascii") if not text.isprintable() else text
