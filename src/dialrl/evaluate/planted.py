"""Replies whose worth is known, to be graded by a judge that is under test: read from a file, and made from those.

A state is a person and a dialogue up to the reply. Written down for it are a good, a mediocre, a harmful and an
off-topic reply with their labels; code makes the rest: nothing said, the last reply said again, praise that fits
anyone, padding that adds only words, and orders to the judge. Not here: asking a judge (``judge_trial``).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from dialrl.config import read_yaml, validated
from dialrl.errors import InputError
from dialrl.resources import resource
from dialrl.scenario.message import Message
from dialrl.state.rubric import Rubric

SHIPPED = "planted/support.yaml"
GOOD, MEDIOCRE, HARMFUL, OFF_TOPIC = "good", "mediocre", "harmful", "off_topic"
EMPTY, REPETITION, FLATTERY, PADDED, INJECTION = "empty", "repetition", "flattery", "padded", "injection"
QUALITY = {GOOD: 3, MEDIOCRE: 2, OFF_TOPIC: 1, EMPTY: 1, REPETITION: 1, FLATTERY: 1, HARMFUL: 0}
"""How good a kind is, for its place in the order; 1: worth nothing."""
WORTHLESS = (FLATTERY, REPETITION, OFF_TOPIC, EMPTY)
PADDING_TIMES = (1, 3)


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Line(_Part):
    """One message of a dialogue, by one of the two."""

    person: str | None = None
    helper: str | None = None

    @model_validator(mode="after")
    def _one_speaks(self) -> "Line":
        if (self.person is None) == (self.helper is None):
            raise ValueError("expected either person or helper")
        return self

    @property
    def message(self) -> Message:
        return Message("assistant", self.helper) if self.helper is not None else Message("user", self.person or "")


class Labelled(_Part):
    """A reply and its level on each indicator, in the rubric's order."""

    text: str = Field(min_length=1)
    levels: tuple[int, ...]


class State(_Part):
    """A person, a dialogue that ends with a line of theirs, and replies of known worth."""

    id: str = Field(min_length=1)
    card: str
    language: str = "en"
    dialogue: tuple[Line, ...] = Field(min_length=1)
    good: Labelled
    mediocre: Labelled
    harmful: Labelled
    off_topic: Labelled

    @model_validator(mode="after")
    def _awaits_a_reply(self) -> "State":
        if self.dialogue[-1].person is None:
            raise ValueError("the dialogue ends with the helper; expected a line of the person, to which is replied")
        return self


class PlantedFile(_Part):
    """A file of states; ``filler``, ``flattery`` and ``instructions`` by language."""

    rubric: str
    filler: dict[str, str]
    flattery: dict[str, str]
    instructions: dict[str, tuple[str, ...]]
    states: tuple[State, ...] = Field(min_length=2)

    @model_validator(mode="after")
    def _states_fit(self) -> "PlantedFile":
        names = [state.id for state in self.states]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise ValueError(f"state '{repeated[0]}' stands twice")
        for state in self.states:
            for part in ("filler", "flattery", "instructions"):
                if state.language not in getattr(self, part):
                    raise ValueError(f"state '{state.id}' is in '{state.language}', for which there is no {part}")
        return self


@dataclass(frozen=True)
class Planted:
    """One reply to be graded. ``base``: the kind it was made from; ``labels``: its levels by indicator, or None.

    ``quality`` places it in the order of its state; None where it is compared with its base alone.
    """

    state: State
    kind: str
    variant: int
    text: str
    base: str
    quality: int | None
    labels: Mapping[str, int] | None

    @property
    def name(self) -> str:
        return f"{self.state.id}/{self.kind}/{self.base}/{self.variant}"

    @property
    def dialogue(self) -> list[Message]:
        """The dialogue with this reply at its end."""
        return [*(line.message for line in self.state.dialogue), Message("assistant", self.text)]

    @property
    def turn(self) -> int:
        """Place of the reply among the helper's, from 0."""
        return sum(line.helper is not None for line in self.state.dialogue)


def load_planted(place: str | Path | None, rubric: Rubric) -> list[Planted]:
    """All replies of a file (None: the shipped one). Raises UsageError or InputError naming what is wrong."""
    path = resource(SHIPPED) if place is None else Path(place)
    read = validated(PlantedFile, read_yaml(path), where=f"the planted replies '{path}'")
    if read.rubric != rubric.name:
        raise InputError(
            f"'{path}' has labels of the rubric '{read.rubric}', the judge grades by '{rubric.name}'. Give replies with"
            " labels of that rubric: --planted FILE"
        )
    return [reply for state in read.states for reply in _replies(state, read, rubric, path)]


def _replies(state: State, file: PlantedFile, rubric: Rubric, path: Path) -> Iterator[Planted]:
    known = {kind: getattr(state, kind) for kind in (GOOD, MEDIOCRE, HARMFUL, OFF_TOPIC)}
    for kind, reply in known.items():
        labels = _labels(state, kind, reply, rubric, path)
        yield Planted(state, kind, 0, reply.text.strip(), kind, QUALITY[kind], labels)
    yield from _worthless(state, file, rubric)
    for kind in (GOOD, MEDIOCRE, HARMFUL):
        text = known[kind].text.strip()
        for times in PADDING_TIMES:
            padded = " ".join([text, *[file.filler[state.language].strip()] * times])
            yield Planted(state, PADDED, times, padded, kind, None, None)
    for kind in (MEDIOCRE, HARMFUL, EMPTY):
        text = "" if kind == EMPTY else known[kind].text.strip()
        for number, order in enumerate(file.instructions[state.language]):
            yield Planted(state, INJECTION, number, f"{text}\n\n{order}".strip(), kind, None, None)


def _worthless(state: State, file: PlantedFile, rubric: Rubric) -> Iterator[Planted]:
    nothing = dict.fromkeys(rubric.indicator_names, 0)
    yield Planted(state, EMPTY, 0, "", EMPTY, QUALITY[EMPTY], nothing)
    yield Planted(state, FLATTERY, 0, file.flattery[state.language].strip(), FLATTERY, QUALITY[FLATTERY], None)
    said = [line.helper for line in state.dialogue if line.helper is not None]
    if said:
        yield Planted(state, REPETITION, 0, said[-1], REPETITION, QUALITY[REPETITION], None)


def _labels(state: State, kind: str, reply: Labelled, rubric: Rubric, path: Path) -> dict[str, Any]:
    names = rubric.indicator_names
    if len(reply.levels) != len(names):
        raise InputError(
            f"'{path}', state '{state.id}', {kind}: {len(reply.levels)} levels; expected one for each of"
            f" {', '.join(names)}."
        )
    labels = dict(zip(names, reply.levels, strict=True))
    rubric.increment_from_levels(labels)  # refuses a level that the rubric does not have
    return labels
