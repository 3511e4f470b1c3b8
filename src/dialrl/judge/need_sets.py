"""The closed set of needs among which a listener chooses: the card's own, that of another dialogue, and distractors.

The second is the control: the same score with the needs permuted among the dialogues. Pure, but for the environment
that has the cards. Source: docs/stages/judge-information-gain.md, *Hidden needs*. Not here: the listener.
"""

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dialrl.errors import InputError, UsageError
from dialrl.judge.belief_tasks import Row
from dialrl.judge.need_options import NeedOptions
from dialrl.judge.scenarios import Scenarios
from dialrl.scenario.card import Scenario

DEFAULT_FIELDS = {"support": "hopes", "demo": "detail"}
Key = tuple[str, str]


@dataclass(frozen=True)
class NeedSet:
    """``candidates[target]`` is the card's need, ``candidates[shuffled]`` that of another dialogue (None: no other)."""

    candidates: tuple[str, ...]
    target: int
    shuffled: int | None


@dataclass
class NeedSets:
    """Sets by (environment, scenario). First every scenario of the file is noted, then their sets can be asked for."""

    scenarios: Scenarios
    options: NeedOptions
    seed: int
    _noted: dict[Key, tuple[str, str | None]] = field(default_factory=dict)
    _made: dict[Key, NeedSet] = field(default_factory=dict)
    _known: dict[tuple[str, str], list[tuple[str, str | None]]] = field(default_factory=dict)

    def note(self, row: Row) -> None:
        """Take the row's scenario. Raises InputError for a card without the need, or alone with it."""
        key = (row["environment"], row["scenario_id"])
        if key not in self._noted:
            self._noted[key] = self._need(key[0], self.scenarios.find(row))
            if len(self._others(row)) == 0:
                raise InputError(
                    f"'{key[1]}' is the only scenario of '{key[0]}' with the need '{self._noted[key][0]}': there is"
                    " nothing to tell it from. Name another field of the card: judge_options.target_field."
                )

    def of(self, row: Row) -> NeedSet:
        """The set of a noted row's scenario."""
        key = (row["environment"], row["scenario_id"])
        if key not in self._made:
            target, shuffled = self._noted[key][0], self._shuffled(key)
            drawn = [need for need in self._others(row) if need != shuffled]
            draw = random.Random(f"needs {self.seed} {key[1]}")
            kept = self.options.candidates - (1 if shuffled is None else 2)
            others = draw.sample(drawn, min(kept, len(drawn)))
            candidates = sorted({target, *others, *([] if shuffled is None else [shuffled])})
            place = None if shuffled is None else candidates.index(shuffled)
            self._made[key] = NeedSet(tuple(candidates), candidates.index(target), place)
        return self._made[key]

    def _shuffled(self, key: Key) -> str | None:
        """The need next to this one in a shuffled circle of all that the file holds in this language."""
        target, language = self._noted[key]
        circle = sorted({need for need, spoken in self._noted.values() if spoken == language})
        random.Random(f"needs permuted {self.seed}").shuffle(circle)
        return None if len(circle) < 2 else circle[(circle.index(target) + 1) % len(circle)]

    def _others(self, row: Row) -> list[str]:
        """Needs of the scenarios of the same split and language, without the row's own."""
        target, language = self._noted[row["environment"], row["scenario_id"]]
        known = self._in_split(row["environment"], self.scenarios.find(row).split)
        return sorted({need for need, spoken in known if spoken == language and need != target})

    def _in_split(self, environment: str, split: str) -> list[tuple[str, str | None]]:
        if (environment, split) not in self._known:
            found = self.scenarios.environment(environment).scenarios(split)
            self._known[environment, split] = [self._need(environment, scenario) for scenario in found]
        return self._known[environment, split]

    def _need(self, environment: str, scenario: Scenario) -> tuple[str, str | None]:
        """Need and language of a card."""
        name = self.options.target_field or DEFAULT_FIELDS.get(environment)
        if name is None:
            raise UsageError(
                f"Which field of a card of the environment '{environment}' holds the hidden need? Name it with"
                f" judge_options.target_field; a card has: {', '.join(sorted(scenario.card))}."
            )
        value = _value(scenario.card, name.split("."))
        if not isinstance(value, str) or not value.strip():
            raise InputError(
                f"The card of '{scenario.scenario_id}' has no text in '{name}' (got {value!r:.60}). Name a field of"
                f" text with judge_options.target_field; the card has: {', '.join(sorted(scenario.card))}."
            )
        language = scenario.card.get("language")
        return value.strip(), language if isinstance(language, str) else None


def _value(card: Mapping[str, Any], path: Iterable[str]) -> Any:
    value: Any = card
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def quotes(line: str, need: str, characters: int) -> bool:
    """Whether ``line`` holds ``characters`` letters of ``need`` in a row, word for word; never of a shorter need.

    Example: "I hope for permission to be angry" quotes "permission to be angry without" at 20 characters.
    """
    spoken, hidden = (" ".join(text.casefold().split()) for text in (line, need))
    pieces = (hidden[place : place + characters] for place in range(len(hidden) - characters + 1))
    return any(piece in spoken for piece in pieces)
