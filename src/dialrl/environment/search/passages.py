"""A passages file: JSON lines with a title and a text, by its path or as it ships. Not here: finding any (``bm25``)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dialrl.environment.search.retriever import Passage
from dialrl.errors import InputError, MissingInputError
from dialrl.resources import resource
from dialrl.trajectory.importers.json_lines import parse_line


def given_or_shipped(name: str) -> Path:
    """The file ``name``, or the one that ships under it (search-world/questions.jsonl)."""
    path = Path(name)
    if path.exists():
        return path
    try:
        return resource(name)
    except MissingInputError:
        return path


def load_passages(path: Path) -> list[Passage]:
    """Passages of a JSON-lines file: ``title`` and ``text``, or ``contents`` whose first line is the title.

    Raises InputError naming file and line.
    """
    if not path.is_file():
        raise MissingInputError(f"Passages '{path}' do not exist. Give a JSON-lines file with title and text a line.")
    passages = []
    with path.open("rb") as handle:
        for number, line in enumerate(handle, start=1):
            if line.strip():
                passages.append(as_passage(parse_line(line, path, number), f"'{path}', line {number}"))
    if not passages:
        raise InputError(f"'{path}' holds no passages.")
    return passages


def as_passage(value: Mapping[str, Any], place: str) -> Passage:
    """A passage of an object. Example: {"contents": "\\"Rome\\"\\nA city."} -> title Rome, text "A city."."""
    title, text = value.get("title") or "", value.get("text")
    if text is None and isinstance(value.get("contents"), str):
        title, _, text = value["contents"].partition("\n")
        title, text = (title.strip('" '), text) if text else ("", title)
    if not isinstance(title, str) or not isinstance(text, str):
        raise InputError(f"{place} is no passage: expected the keys title and text, or contents, as texts.")
    return Passage(title, text)
