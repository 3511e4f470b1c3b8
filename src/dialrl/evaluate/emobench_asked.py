"""What a model said to EmoBench's questions: letters read from it, columns of the results, and both ways back.

An answer is a JSON object that holds the bare letter of each part, alone, in a code fence or between words. Not here:
asking (``emobench_live``), scores.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from dialrl.errors import InputError
from dialrl.evaluate.emobench_answers import Items
from dialrl.evaluate.emobench_items import Item, Part, letter, shown_order
from dialrl.evaluate.emobench_score import Answered, Order, Places
from dialrl.evaluate.reply import Reply

_FENCE = re.compile(r"```(?:json)?\s*\n(.*?)\n?\s*```", re.DOTALL)
BOTH = ""  # the part of an answer to all parts at once
# Null for stored answers.
ANSWERS_COLUMN = (
    "answers",
    pa.list_(
        pa.struct(
            [
                ("order", pa.int64()), ("sample", pa.int64()), ("part", pa.string()), ("text", pa.string()),
                ("finish_reason", pa.string()), ("error", pa.string()),
            ]
        )
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Slot:
    """One answer that is wanted; ``part`` names the one question asked, BOTH where all were."""

    order: int
    sample: int
    part: str = BOTH


Said = Mapping[Slot, Reply]


def parts_of(item: Item, slot: Slot) -> tuple[Part, ...]:
    """The questions that a slot's answer is to."""
    return tuple(part for part in item.parts if slot.part in (BOTH, part.name))


def read_letters(text: str, parts: Sequence[Part]) -> Places:
    """The place of the letter given for each of ``parts``, None where there is none.

    Example: 'So: {"emotion": "B", "cause": "none"}' for an emotion and a cause -> (1, None).
    """
    found = _object_in(text)
    return tuple(_place(found.get(part.name), len(part.choices)) for part in parts)


def _object_in(text: str) -> Mapping[str, Any]:
    fence = _FENCE.search(text)
    between = text[text.find("{") : text.rfind("}") + 1]
    for candidate in (text, fence.group(1) if fence else "", between):
        try:
            value = json.loads(candidate, strict=False)  # a bare line break in a text is no reason to refuse it
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            return value
    return {}


def _place(value: Any, choices: int) -> int | None:
    known = [letter(place) for place in range(choices)]
    return known.index(value.strip()) if isinstance(value, str) and value.strip() in known else None


def answered_of(item: Item, said: Said, shuffle_seed: int) -> Answered:
    """The answers to one item by order and sample; a sample of which a part has no answer is left out."""
    found = Answered(item.task, item.language, item.qid, item.chance, item.category, item.subcategory)
    for number, sample in sorted({(slot.order, slot.sample) for slot in said}):
        replies = {slot: said[slot] for slot in said if (slot.order, slot.sample) == (number, sample)}
        if any(reply.text is None for reply in replies.values()):
            continue
        shown = [shown_order(item, part, number, shuffle_seed) for part in item.parts]
        right = tuple(order.index(part.right) for part, order in zip(item.parts, shown, strict=True))
        places = {
            part.name: place
            for slot, reply in replies.items()
            for part, place in zip(parts_of(item, slot), read_letters(reply.said, parts_of(item, slot)), strict=True)
        }
        order = found.orders.setdefault(number, Order(right))
        order.samples[sample] = tuple(places.get(part.name) for part in item.parts)
    return found


def answer_rows(said: Said) -> list[dict[str, Any]]:
    """The value of the column ``answers``."""
    return [{**vars(slot), **vars(reply)} for slot, reply in sorted(said.items(), key=lambda entry: _rank(entry[0]))]


def _rank(slot: Slot) -> tuple[int, int, str]:
    return slot.order, slot.sample, slot.part


def said_by_item(rows: Iterable[Mapping[str, Any]], items: Items, place: Path) -> dict[tuple[str, str, str], Said]:
    """What the rows of a results file hold, by item. Raises InputError for an item that is not among these."""
    found: dict[tuple[str, str, str], Said] = {}
    for row in rows:
        key = (row["task"], row["language"], row["qid"])
        if key not in items:
            raise InputError(f"'{place}' answers {'/'.join(key)}, which is none of the {len(items)} items given.")
        found[key] = {
            Slot(one["order"], one["sample"], one["part"]): Reply(one["text"], one["finish_reason"], one["error"])
            for one in row["answers"] or ()
        }
    return found
