"""The demo world's scenarios: who the user is, what they speak about, and what they keep back.

A scenario is made from a split and an integer alone. Train and test share every word and no (feeling, topic) pair; both
hold each hidden profile in the same proportions, so that their reference values agree.
"""

import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cache
from typing import Any, Literal

from dialrl.environment.demo.lines import OPENING_COUNT, opening_line
from dialrl.environment.demo.rules import initial_deficit
from dialrl.environment.demo.words import DETAILS, FEELINGS, TOPICS
from dialrl.errors import InputError

Split = Literal["train", "test"]

NEEDS = ("understanding", "sharing", "agency")
SPLIT_SIZES: dict[Split, int] = {"train": 240, "test": 72}

# need x guarded x (does the opening sound guarded?): the opening is right about guardedness three times in four.
_PROFILES = tuple(
    (need, guarded, guarded if right else not guarded)
    for right in (True, True, False, True)
    for guarded in (False, True)
    for need in range(3)
)


@dataclass(frozen=True)
class DemoScenario:
    """One user. ``guarded`` and ``need`` are hidden from the policy; the opening's wording hints at both."""

    scenario_id: str
    split: Split
    topic: str
    feeling: str
    detail: str
    need: int
    guarded: bool
    sounds_guarded: bool
    wording: int

    @property
    def opening(self) -> str:
        """The first user line, the same in every dialogue of this scenario."""
        return opening_line(self.need, self.sounds_guarded, self.wording, self.topic, self.feeling)

    def to_card(self) -> dict[str, str | int | bool]:
        """JSON values of every field."""
        return asdict(self)

    @classmethod
    def from_card(cls, card: Mapping[str, Any]) -> "DemoScenario":
        """The scenario of a card; raises InputError when a field is missing or unknown."""
        names = {field.name for field in fields(cls)}
        if set(card) != names:
            raise InputError(f"A demo card has the fields {sorted(names)}, got {sorted(card)}; make it with to_card().")
        return cls(**card)

    @property
    def deficit(self) -> tuple[int, int, int]:
        """P_0 = (C, A, P)."""
        return initial_deficit(self.need)


def scenario(split: Split, index: int) -> DemoScenario:
    """The scenario ``index`` (from 0) of a split.

    Raises InputError when the split has no such scenario.
    """
    if not 0 <= index < SPLIT_SIZES[split]:
        raise InputError(f"demo scenario {split}-{index} does not exist: the split {split!r} has {SPLIT_SIZES[split]}")
    offset = 0 if split == "train" else SPLIT_SIZES["train"]
    feeling, topic = _shuffled_pairs()[offset + index]
    need, guarded, sounds_guarded = _PROFILES[index % len(_PROFILES)]
    draw = random.Random(f"demo scenario {split} {index}")
    return DemoScenario(
        scenario_id=f"demo-{split}-{index:03d}",
        split=split,
        topic=topic,
        feeling=feeling,
        detail=draw.choice(DETAILS),
        need=need,
        guarded=guarded,
        sounds_guarded=sounds_guarded,
        wording=draw.randrange(OPENING_COUNT),
    )


@cache
def scenarios(split: Split) -> tuple[DemoScenario, ...]:
    """Every scenario of a split. Any len(PROFILES) = 24 in a row hold each hidden profile in its proportion."""
    return tuple(scenario(split, index) for index in range(SPLIT_SIZES[split]))


@cache
def _shuffled_pairs() -> tuple[tuple[str, str], ...]:
    pairs = [(feeling, topic) for feeling in FEELINGS for topic in TOPICS]
    random.Random("demo pairs").shuffle(pairs)
    return tuple(pairs)
