"""Stored EmoBench answers as published in 2025: JSON lines of letters. The CSV files of 2024: ``emobench_csv``.

A line holds ``qid``, ``lang`` and ``answer`` (EA) or ``emo_answer`` and ``cause_answer`` (EU); ``label`` and its kin
are checked against the questions. Two keys of our own say more: ``sample`` (0, 1 ...) and ``order`` (0: as shipped; 1,
2 ...: shuffled by the shuffle seed). Only the bare letter is an answer, as published. Not here: scores.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dialrl.evaluate.emobench_items import Item, Part, Task, letter, shown_order
from dialrl.evaluate.emobench_score import Answered, Order
from dialrl.evaluate.stored import Stored, read_lines

WHAT = "EmoBench answers, one JSON object a line"
# Part -> the fields of its answer and of the right letter.
_FIELDS = {
    "answer": ("answer", "label"),
    "emotion": ("emo_answer", "emo_label"),
    "cause": ("cause_answer", "cause_label"),
}
Items = Mapping[tuple[str, str, str], Item]


def read_json_answers(path: Path, items: Items, shuffle_seed: int) -> list[Answered]:
    """The answers of a file by item. Raises InputError naming file, line and field."""
    reading = _Reading(items, shuffle_seed)
    for stored in read_lines(path, WHAT):
        reading.add(stored)
    return list(reading.found.values())


@dataclass
class _Reading:
    items: Items
    shuffle_seed: int

    def __post_init__(self) -> None:
        self.found: dict[tuple[str, str, str], Answered] = {}
        self._lines: dict[tuple[object, ...], int] = {}

    def add(self, stored: Stored) -> None:
        item = self._item(stored)
        number = _from_zero(stored, "order")
        sample = _from_zero(stored, "sample")
        self._refuse_repeat(stored, (item.key, number, sample))
        answered = self.found.setdefault(item.key, _unanswered(item))
        shown = [shown_order(item, part, number, self.shuffle_seed) for part in item.parts]
        right = tuple(order.index(part.right) for part, order in zip(item.parts, shown, strict=True))
        for part, place in zip(item.parts, right, strict=True):
            _check_label(stored, part, place)
        order = answered.orders.setdefault(number, Order(right))
        order.samples[sample] = tuple(_place(stored, part) for part in item.parts)

    def _item(self, stored: Stored) -> Item:
        task: Task = "EU" if any(field in stored.mapping() for field in ("emo_answer", "cause_answer")) else "EA"
        language = stored.name("lang" if stored.has("lang") else "language")
        key = (task, language, stored.name("qid"))
        if key not in self.items:
            raise stored.fault(
                ("qid",), f"got '{key[2]}'; the questions have no {task} item of language '{language}' so"
            )
        return self.items[key]

    def _refuse_repeat(self, stored: Stored, key: tuple[object, ...]) -> None:
        if key in self._lines:
            raise stored.fault(
                ("qid",),
                f"was answered on line {self._lines[key]} already; several answers need 'sample' 0, 1 ... or 'order'",
            )
        self._lines[key] = stored.first_line


def _unanswered(item: Item) -> Answered:
    return Answered(item.task, item.language, item.qid, item.chance, item.category, item.subcategory)


def _from_zero(stored: Stored, field: str) -> int:
    number = stored.whole(field) if stored.has(field) else 0
    if number < 0:
        raise stored.fault((field,), f"got {number}; expected 0, 1 ...")
    return number


def _place(stored: Stored, part: Part) -> int | None:
    """Place of the letter that was answered; None where the answer is anything else."""
    field = _FIELDS[part.name][0]
    if field not in stored.mapping():
        raise stored.fault((field,), "is missing; expected a letter, or an empty text where none was given")
    text = stored.string(field) if stored.has(field) else ""
    letters = [letter(place) for place in range(len(part.choices))]
    return letters.index(text) if text in letters else None


def _check_label(stored: Stored, part: Part, right: int) -> None:
    field = _FIELDS[part.name][1]
    if stored.has(field) and stored.string(field) != letter(right):
        raise stored.fault(
            (field,),
            f"got '{stored.string(field)}', but '{letter(right)}' is right by the questions given; these answers belong"
            " to others, or were shuffled by another seed",
        )
