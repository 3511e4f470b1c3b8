"""JSON that lies on the disk, where anybody may have changed it: read so that what is wrong names the file.

``read_object`` for files that are mappings, ``as_record`` for those with a known shape. Not here: YAML and the
configuration of stages (``config``); rows of JSON lines (``trajectory.importers``).
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from dialrl.errors import InputError, MissingInputError

RecordT = TypeVar("RecordT")


class Checked:
    """Base of dataclasses read with ``as_record``: keys they do not have are refused, and no text is made a number."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True)


def read_object(file: Path, *, remedy: str = "Write it again.") -> dict[str, Any]:
    """The object in a JSON file. Raises InputError, ending with ``remedy``, for anything else."""
    if not file.is_file():
        raise MissingInputError(f"'{file}' does not exist. {remedy}")
    return parse_object(file.read_bytes(), where=f"'{file}'", remedy=remedy)


def parse_object(text: bytes | str, *, where: str, remedy: str) -> dict[str, Any]:
    """The object in JSON text. Raises InputError beginning with ``where`` and ending with ``remedy``."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where} is not valid JSON ({error}). {remedy}") from None
    if not isinstance(content, dict):
        raise InputError(f"{where} holds {_kind(content)}; expected an object. {remedy}")
    return content


def as_record(kind: type[RecordT], content: Mapping[str, Any], *, where: str, remedy: str) -> RecordT:
    """``content`` as the dataclass ``kind``, every key and value checked.

    Raises InputError naming each wrong one: ``'p/manifest.json': step holds 'x': Input should be a valid integer``.
    """
    try:
        return TypeAdapter(kind).validate_json(json.dumps(content))
    except ValidationError as error:
        faults = "; ".join(_fault(fault) for fault in error.errors(include_url=False))
        raise InputError(f"{where}: {faults}. {remedy}") from None


def _fault(fault: Any) -> str:
    key = ".".join(str(part) for part in fault["loc"]) or "the whole"
    if fault["type"] == "missing":
        return f"'{key}' is missing"
    if fault["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        return f"'{key}' is not known"
    return f"'{key}' holds {fault['input']!r:.60}: {fault['msg']}"


def _kind(value: Any) -> str:
    names = {list: "a list", str: "a text", int: "a number", float: "a number", bool: "true or false"}
    return names.get(type(value), "null")
