r"""Reads stored questions and answers (JSON documents, JSON lines) strictly: every fault names file, line and field.

A number may stand as text (``"4"``), as benchmark files have it; nothing else is converted. Lines end at ``\n`` alone:
a text may hold U+2028. Not here: what any field means.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from dialrl.errors import InputError, MissingInputError
from dialrl.evaluate.json_places import Key, dotted, line_of, line_of_repeat
from dialrl.trajectory.importers.json_lines import RepeatedKeyError, no_constant, without_repeats
from dialrl.trajectory.importers.json_values import MisfitError, convert

_NUMBER, _WHOLE, _TEXT = pa.float64(), pa.int64(), pa.string()


@dataclass(frozen=True)
class Stored:
    """One JSON value with the place it came from; ``where`` is its first line in the file."""

    path: Path
    text: str
    value: Any
    first_line: int = 1

    def fault(self, keys: Sequence[Key], problem: str) -> InputError:
        """What is wrong with the field at ``keys``."""
        line = line_of(self.text, keys, self.first_line)
        field = f", field '{dotted(keys)}'" if keys else ""
        return InputError(f"'{self.path}', line {line}{field}: {problem}.")

    def has(self, *keys: Key) -> bool:
        """True when the field is there and not null."""
        return self._find(keys) is not None

    def number(self, *keys: Key) -> float:
        """A number, or a text that is one."""
        return float(self._converted(keys, _NUMBER))

    def whole(self, *keys: Key) -> int:
        """A whole number, or a text that is one."""
        return int(self._converted(keys, _WHOLE))

    def string(self, *keys: Key) -> str:
        """A text."""
        return str(self._converted(keys, _TEXT))

    def name(self, *keys: Key) -> str:
        """An id: a text, or a whole number as one; never empty."""
        value = self._find(keys)
        found = str(value) if type(value) is int else self.string(*keys)
        if not found.strip():
            raise self.fault(keys, "is empty; expected an id")
        return found

    def mapping(self, *keys: Key) -> Mapping[str, Any]:
        """A JSON object."""
        value = self._find(keys)
        if not isinstance(value, dict):
            raise self.fault(keys, f"got {_kind(value)}; expected an object")
        return value

    def sequence(self, *keys: Key) -> Sequence[Any]:
        """A JSON list."""
        value = self._find(keys)
        if not isinstance(value, list):
            raise self.fault(keys, f"got {_kind(value)}; expected a list")
        return value

    def _find(self, keys: Sequence[Key]) -> Any:
        value = self.value
        for key in keys:
            inside = isinstance(value, list) and isinstance(key, int) and key < len(value)
            inside = inside or (isinstance(value, dict) and key in value)
            value = value[key] if inside else None
        return value

    def _converted(self, keys: Sequence[Key], kind: pa.DataType) -> Any:
        value = self._find(keys)
        if value is None:
            raise self.fault(keys, f"is missing; expected {_expected(kind)}")
        try:
            return convert(value, kind, "")
        except MisfitError as misfit:
            raise self.fault(keys, misfit.problem) from None


def read_document(path: Path, what: str) -> Stored:
    """A whole file as one JSON value. ``what`` says in errors which file was expected."""
    text = _decoded(path, _bytes(path, what), 1)
    return Stored(path, text, _parsed(path, text, 1))


def read_lines(path: Path, what: str) -> Iterator[Stored]:
    """Each line of a JSON-lines file that is not blank."""
    found = False
    for number, line in enumerate(_bytes(path, what).split(b"\n"), start=1):
        if line.strip():
            found = True
            text = _decoded(path, line, number)
            yield Stored(path, text, _parsed(path, text, number), number)
    if not found:
        raise InputError(f"'{path}' is empty; expected {what}.")


def _bytes(path: Path, what: str) -> bytes:
    if not path.exists():
        raise MissingInputError(f"'{path}' does not exist; expected {what}.")
    if path.is_dir():
        raise InputError(f"'{path}' is a folder; expected {what}.")
    content = path.read_bytes()
    if not content.strip():
        raise InputError(f"'{path}' is empty; expected {what}.")
    return content


def _decoded(path: Path, content: bytes, first_line: int) -> str:
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = first_line + content.count(b"\n", 0, error.start)
        raise InputError(f"'{path}', line {line} is not UTF-8 (byte {error.start}). Write the file as UTF-8.") from None
    return text.removeprefix("\ufeff") if first_line == 1 else text


def _parsed(path: Path, text: str, first_line: int) -> Any:
    try:
        return json.loads(text, object_pairs_hook=without_repeats, parse_constant=no_constant)
    except RepeatedKeyError as error:
        line = first_line - 1 + line_of_repeat(text, str(error))
        raise InputError(f"'{path}', line {line}, field '{error}' stands twice; expected each key once.") from None
    except json.JSONDecodeError as error:
        line = first_line - 1 + error.lineno
        raise InputError(f"'{path}', line {line} is not valid JSON ({error.msg}, column {error.colno}).") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"'{path}', line {first_line} and on is not valid JSON ({error}).") from None


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "nothing"}
    return names.get(type(value), "a number")


def _expected(kind: pa.DataType) -> str:
    return {_NUMBER: "a number", _WHOLE: "a whole number", _TEXT: "a text"}[kind]
