"""Support cards as files: one card or many a file, YAML, JSON, JSONL or markdown; a folder holds any number of them.

Not here: other shapes of a card (``card_imports``), what a card is (``support_card``), and which are kept out of
training (``split``).
"""

import hashlib
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dialrl.errors import InputError, MissingInputError
from dialrl.resources import resource
from dialrl.scenario.card_imports import card_values, is_flat, nested
from dialrl.scenario.support_card import SupportCard, read_card

SHIPPED = "cards"
_SUFFIXES = (".yaml", ".yml", ".json", ".jsonl", ".md")


def load_cards(place: str | Path | None = None) -> list[SupportCard]:
    """The cards in a file or folder (None: the shipped ones), by id."""
    return load_all([resource(SHIPPED) if place is None else Path(place)])


def load_all(places: Sequence[Path]) -> list[SupportCard]:
    """The cards in files and folders, by id. Raises what ``cards_with_files`` raises."""
    return [card for card, _ in cards_with_files(places)]


def cards_with_files(places: Sequence[Path]) -> list[tuple[SupportCard, Path]]:
    """The cards in files and folders with the file each stands in, by id.

    Raises InputError naming file, card and field for a card that is none, and both files of an id that stands twice.
    """
    found: dict[str, tuple[SupportCard, Path]] = {}
    for file in (file for place in places for file in _files(place)):
        for number, values in enumerate(_values(file)):
            card = read_card(nested(values) if is_flat(values) else values, f"'{file}', number {number}")
            if card.id in found:
                raise InputError(f"The card '{card.id}' stands in '{found[card.id][1]}' and in '{file}'. Rename one.")
            found[card.id] = (card, file)
    if not found:
        where = ", ".join(f"'{place}'" for place in places)
        raise InputError(f"There are no cards in {where}. Give a file or folder of {', '.join(_SUFFIXES)}.")
    return [found[identity] for identity in sorted(found)]


def cards_text(cards: Sequence[SupportCard]) -> str:
    """``cards`` as a YAML file that ``load_cards`` reads."""
    import yaml

    values = [card.model_dump(mode="json", exclude_none=True) for card in cards]
    return str(yaml.safe_dump({"cards": values}, allow_unicode=True, sort_keys=False, width=118))


def cards_digest(cards: Sequence[SupportCard]) -> str:
    """Content hash of ``cards``, wherever their files lie."""
    content = hashlib.sha256()
    for card in cards:
        content.update(card.model_dump_json().encode() + b"\n")
    return "sha256:" + content.hexdigest()


def _files(root: Path) -> list[Path]:
    if not root.exists():
        raise MissingInputError(f"There are no cards at '{root}'. Give a file or folder of {', '.join(_SUFFIXES)}.")
    if root.is_file():
        return [root]
    return sorted(path for path in root.rglob("*") if path.suffix in _SUFFIXES)


def _values(file: Path) -> Iterator[Any]:
    """The cards of one file: a mapping with ``cards``, a list, or one card; JSONL has one a line."""
    try:
        text = file.read_text(encoding="utf-8")
        if not text.strip():
            raise ValueError("it is empty; expected a card, or a list of cards")
        if file.suffix == ".md":
            yield card_values(text, file.stem)
            return
        if file.suffix == ".jsonl":
            yield from (json.loads(line) for line in text.splitlines() if line.strip())
            return
        content = json.loads(text) if file.suffix == ".json" else _yaml(text, file)
        if content is None:
            raise ValueError("it holds comments or nothing; expected a card, or a list of cards")
    except (ValueError, UnicodeDecodeError) as error:
        raise InputError(f"'{file}' cannot be read: {error}") from None
    if isinstance(content, dict) and isinstance(content.get("cards"), list):
        content = content["cards"]
    yield from content if isinstance(content, list) else [content]


def _yaml(text: str, file: Path) -> Any:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        named = io.StringIO(text)
        named.name = str(file)  # what yaml calls the text in its errors
        return yaml.load(named, Loader=loader)  # noqa: S506 - both are safe
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None
