"""EmoBench's items: emotional application (EA, one question) and understanding (EU, an emotion and its cause).

An item is loaded only if it can be scored: its right answers are among its choices, and no choice stands twice. Also
the orders in which choices are shown. Not here: answers (``emobench_answers``), scores (``emobench_score``).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import ascii_uppercase
from typing import Literal

import numpy as np

from dialrl.errors import InputError
from dialrl.evaluate.stored import Stored, read_lines
from dialrl.seeds import seed_for

Task = Literal["EA", "EU"]
TASKS: tuple[Task, ...] = ("EA", "EU")
SHIPPED = 0  # the order in which the benchmark ships the choices; others are shuffled
WHAT = "EmoBench's items (EA.jsonl, EU.jsonl) or a folder of them"
# The fields of each question of a task: its choices and its right answer, and how the part is called here.
_PARTS = {
    "EA": (("answer", "choices", "label"),),
    "EU": (("emotion", "emotion_choices", "emotion_label"), ("cause", "cause_choices", "cause_label")),
}


@dataclass(frozen=True)
class Part:
    """One multiple-choice question; ``right`` is the place of the right answer in the shipped order."""

    name: str
    choices: tuple[str, ...]
    right: int


@dataclass(frozen=True)
class Item:
    """One item; an EU item is right only if both its parts are."""

    task: Task
    language: str
    qid: str
    category: str
    subcategory: str
    scenario: str
    subject: str
    parts: tuple[Part, ...]

    @property
    def key(self) -> tuple[str, str, str]:
        return self.task, self.language, self.qid

    @property
    def chance(self) -> float:
        """Probability that drawn answers are right. Example: an emotion of 6 and a cause of 4 -> 1 / 24."""
        return float(1.0 / np.prod([len(part.choices) for part in self.parts]))


def load_items(paths: Iterable[Path]) -> dict[tuple[str, str, str], Item]:
    """All items by (task, language, qid). Raises InputError naming file, line and field."""
    items: dict[tuple[str, str, str], Item] = {}
    lines: dict[tuple[str, str, str], str] = {}
    for path in _files(paths):
        for stored in read_lines(path, WHAT):
            item = _item(stored)
            where = f"'{stored.path}', line {stored.first_line}"
            if item.key in items:
                raise stored.fault(
                    ("qid",), f"got '{item.qid}', which language '{item.language}' has already in {lines[item.key]}"
                )
            items[item.key], lines[item.key] = item, where
    return items


def shown_order(item: Item, part: Part, order: int, shuffle_seed: int) -> tuple[int, ...]:
    """Places of the choices as shown: entry i is the shipped place of the choice with the i-th letter.

    ``order`` 0 is the shipped one; order 1, 2 ... are shuffled, each the same for the same seed, item and part.
    """
    if order == SHIPPED:
        return tuple(range(len(part.choices)))
    seed = seed_for(shuffle_seed, 0, "/".join(item.key), order, 0, part.name)
    return tuple(int(place) for place in np.random.default_rng(seed).permutation(len(part.choices)))


def letter(place: int) -> str:
    """A for 0, B for 1 ..."""
    return ascii_uppercase[place]


def _files(paths: Iterable[Path]) -> list[Path]:
    found: list[Path] = []
    for path in paths:
        inside = [path / f"{task}.jsonl" for task in TASKS if (path / f"{task}.jsonl").is_file()]
        if path.is_dir() and not inside:
            raise InputError(f"The folder '{path}' has neither EA.jsonl nor EU.jsonl; expected {WHAT}.")
        found += inside or [path]
    if not found:
        raise InputError(f"No questions were given; expected {WHAT}.")
    return found


def _item(stored: Stored) -> Item:
    task: Task = "EU" if stored.has("emotion_choices") else "EA"
    categories = ("category", "question type") if task == "EA" else ("coarse_category", "finegrained_category")
    return Item(
        task=task,
        language=stored.name("language"),
        qid=stored.name("qid"),
        category=stored.string(categories[0]),
        subcategory=stored.string(categories[1]),
        scenario=stored.string("scenario"),
        subject=stored.string("subject"),
        parts=tuple(_part(stored, *fields) for fields in _PARTS[task]),
    )


def _part(stored: Stored, name: str, choices_field: str, label_field: str) -> Part:
    number = len(stored.sequence(choices_field))
    choices = tuple(stored.string(choices_field, place) for place in range(number))
    if not 2 <= number <= len(ascii_uppercase):
        raise stored.fault((choices_field,), f"has {number} choices; expected 2 to {len(ascii_uppercase)}")
    twice = _repeated(choices)
    if twice is not None:
        raise stored.fault((choices_field, twice), f"repeats the choice '{choices[twice]}'")
    label = stored.string(label_field)
    if label not in choices:
        raise stored.fault((label_field,), f"'{label}' is not among the choices: {', '.join(choices)}")
    return Part(name, choices, choices.index(label))


def _repeated(choices: Sequence[str]) -> int | None:
    return next((place for place, choice in enumerate(choices) if choice in choices[:place]), None)
