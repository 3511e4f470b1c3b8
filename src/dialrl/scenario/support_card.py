"""A support card: who the simulated person is, what happened to them, and how their story opens up.

The whole card is for the actor; director and judge see parts of it, the policy nothing (docs/support.md). Errors name
the card and the field. Not here: files and splits (``cards``).
"""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from dialrl.config import nearest
from dialrl.errors import InputError

MEMORY_PERIODS = ("childhood", "teen", "youth", "current")
STAGES = ("recall", "reflection", "self_examination", "outburst")
Text = Field(min_length=1, max_length=1500)
_FOR_JUDGE = ("person", "topic", "hopes", "priorities", "thread", "memories", "trigger")


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=True)


class Person(_Part):
    """Identity, as seen from outside and from inside."""

    name: str = Text
    age: int = Field(ge=10, le=110)
    gender: Literal["woman", "man", "nonbinary"]
    occupation: str = Text
    background: str = Text
    outward: str = Text
    inward: str = Text


class Memories(_Part):
    """One memory a period of life. A young person may lack the later ones."""

    childhood: str | None = None
    teen: str | None = None
    youth: str | None = None
    current: str = Text

    def told(self) -> dict[str, str]:
        """Those there are, by period."""
        return {period: text for period in MEMORY_PERIODS if (text := getattr(self, period))}


class Stages(_Part):
    """The story in four steps, each deeper than the one before."""

    recall: str = Text
    reflection: str = Text
    self_examination: str = Text
    outburst: str = Text

    def told(self) -> dict[str, str]:
        return {stage: getattr(self, stage) for stage in STAGES}


class SupportCard(_Part):
    """One card. ``deficit`` holds the level of each deficit item of the rubric: P_0 without asking a judge."""

    id: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,79}$")
    language: str = Field("en", min_length=2, max_length=20)
    split: Literal["train", "test"] = "train"
    theme: str = Text
    crisis: Literal["none", "self_harm", "abuse", "minor"] = "none"
    person: Person
    threshold: Literal["high", "mid", "low"]
    topic: str = Text
    hopes: str = Text
    priorities: dict[str, int]
    deficit: dict[str, int] | None = None
    thread: str = Text
    memories: Memories
    trigger: str = Text
    stages: Stages
    outcome: str = Text
    interlude: str = Text
    opening: str | None = Field(None, min_length=1, max_length=500)
    strategy: str = Text

    @model_validator(mode="after")
    def _levels_in_bounds(self) -> "SupportCard":
        for name, levels in (("priorities", self.priorities), ("deficit", self.deficit or {})):
            for key, level in levels.items():
                if not 0 <= level <= 3:
                    raise ValueError(f"{name}.{key} is {level}; expected a level from 0 to 3")
        if not self.priorities:
            raise ValueError("priorities is empty; expected a level from 0 to 3 for each axis")
        return self


def read_card(values: Any, where: str) -> SupportCard:
    """``values`` as a card. Raises InputError naming the card and every wrong field."""
    try:
        return SupportCard.model_validate(values)
    except ValidationError as error:
        identity = values.get("id", "without an id") if isinstance(values, Mapping) else repr(values)[:40]
        faults = "; ".join(_fault(fault) for fault in error.errors())
        raise InputError(f"{where}, card '{identity}': {faults}") from None


def _fault(fault: Mapping[str, Any]) -> str:
    field = ".".join(str(part) for part in fault["loc"]) or "the card"
    if fault["type"] == "extra_forbidden":
        return f"unknown field '{field}'.{nearest(str(fault['loc'][-1]), _KNOWN)}"
    if fault["type"] == "missing":
        return f"field '{field}' is missing"
    said = str(fault["msg"]).removeprefix("Value error, ")
    if not fault["loc"] and fault["type"] == "value_error":  # of the whole card: what is wrong is said already
        return f"field {said}"
    return f"field '{field}': {said} (got {fault.get('input')!r:.60})"


_KNOWN = [name for part in (SupportCard, Person, Memories, Stages) for name in part.model_fields]


def judge_view(card: Mapping[str, Any]) -> dict[str, Any]:
    """What a judge sees of a card: the person and their need, never how the actor is to play them.

    A card of another kind of environment is shown as it is.
    """
    return {name: card[name] for name in _FOR_JUDGE if name in card} if "strategy" in card else dict(card)
