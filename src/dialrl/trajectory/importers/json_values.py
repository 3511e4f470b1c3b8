"""JSON values to values of a column's type, without silent conversions. Not here: files, lines, dialogues.

A number may stand as text (``"4"``) where the column is a number; nothing else is converted. A boolean is no number, a
number is no text, and what cannot be stored exactly (a fraction in a whole-number column, NaN, a lone surrogate) is a
fault.
"""

import math
import re
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any

import pyarrow as pa

from dialrl.config import nearest

REQUIRED_IN_MESSAGE = ("role", "content")
LONGEST_INTEGER = 30  # characters; no column holds more, and a longer one is refused as what it is: too large
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?")

Converter = Callable[[Any], Any]


class MisfitError(Exception):
    """A value that does not fit; ``path`` leads to it (``messages[0].content``), ``problem`` says why."""

    def __init__(self, problem: str, path: str = "") -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem

    def inside(self, place: str) -> "MisfitError":
        """The same fault seen from outside ``place``."""
        return MisfitError(self.problem, place + self.path)


def convert(value: Any, kind: pa.DataType, name: str) -> Any:
    """``value`` of the column ``name`` as Arrow takes it for ``kind``; null stays null. Raises MisfitError."""
    try:
        return None if value is None else _converter(kind)(value)
    except MisfitError as fault:
        raise fault.inside(name) from None


@lru_cache
def _converter(kind: pa.DataType) -> Converter:
    """What turns a known JSON value into one of ``kind``; made once a type, since every value passes through."""
    if pa.types.is_list(kind):
        return partial(_list, _converter(kind.value_type))
    if pa.types.is_struct(kind):
        fields = (kind.field(place) for place in range(kind.num_fields))
        return partial(_struct, {field.name: _converter(field.type) for field in fields})
    if pa.types.is_boolean(kind):
        return _boolean
    if pa.types.is_integer(kind):
        return partial(_integer, 2 ** (kind.bit_width - 1), str(kind))
    return _number if pa.types.is_floating(kind) else _text


def _list(item: Converter, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise MisfitError(f"got {_shown(value)}; expected a list")
    made = []
    for place, one in enumerate(value):
        if one is None:
            raise MisfitError("got null; a list holds known values, or is null as a whole", f"[{place}]")
        try:
            made.append(item(one))
        except MisfitError as fault:
            raise fault.inside(f"[{place}]") from None
    return made


def _struct(fields: Mapping[str, Converter], value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise MisfitError(f"got {_shown(value)}; expected an object")
    unknown = next((key for key in value if key not in fields), None)
    if unknown is not None:
        known = f"{nearest(unknown, fields)} Known: {', '.join(fields)}"
        raise MisfitError(f"unknown key '{_printable(unknown)}'.{known}")
    if all(key in fields for key in REQUIRED_IN_MESSAGE):
        absent = next((key for key in REQUIRED_IN_MESSAGE if value.get(key) is None), None)
        if absent is not None:
            raise MisfitError(f"a message needs '{absent}'")
    made = dict.fromkeys(fields)
    for name, one in value.items():
        try:
            made[name] = None if one is None else fields[name](one)
        except MisfitError as fault:
            raise fault.inside(f".{name}") from None
    return made


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise MisfitError(f"got {_shown(value)}; expected true or false")
    return value


def _integer(limit: int, kind: str, value: Any) -> int:
    number = value if type(value) is int else _parsed(value, "a whole number")
    if isinstance(number, float):
        if not number.is_integer():
            raise MisfitError(f"got {_shown(value)}; expected a whole number")
        number = int(number)
    if not -limit <= number < limit:
        raise MisfitError(f"got {_shown(value)}, which does not fit {kind}")
    return int(number)


def _number(value: Any) -> float:
    number = value if type(value) is float else _parsed(value, "a number")
    try:
        as_float = float(number)
    except OverflowError:
        as_float = math.inf
    if not math.isfinite(as_float):
        raise MisfitError(f"got {_shown(value)}; expected a finite number, or null for what is not known")
    return as_float


def _parsed(value: Any, expected: str) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise MisfitError(f"got {_shown(value)}; expected {expected}")
    if not isinstance(value, str):
        return value
    text = value.strip()
    if not _NUMBER.fullmatch(text):
        raise MisfitError(f"got the text {_shown(value)}; expected {expected}")
    return int(text) if text.lstrip("+-").isdigit() and len(text) < LONGEST_INTEGER else float(text)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise MisfitError(f"got {_shown(value)}; expected text in quotes")
    if not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError as error:
            where = f"at character {error.start}"
            raise MisfitError(f"holds a lone surrogate {where}, which is no text; mend the source") from None
    return value


def _shown(value: Any) -> str:
    text = _printable(repr(value))
    return text if len(text) <= 60 else text[:57] + "..."


def _printable(text: str) -> str:
    return text.encode("ascii", "backslashreplace").decode("ascii") if not text.isprintable() else text
