"""The world in words: passages with distractors, and questions of one to three hops with the searches that solve them.

Words and punctuation stand apart, so that a tiny policy's tokenizer has one token a word. Held-out questions are about
people and towns that no training question begins with. Not here: who is who (``facts``).
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from dialrl.environment.search.retriever import Passage
from dialrl.environment.search.world.facts import Facts, Person, Town
from dialrl.scenario.questions import Question

HOPS = ("one-hop", "two-hop", "three-hop")
HELD_OUT_EVERY = 5


@dataclass(frozen=True)
class WorldQuestion:
    """``queries``: the searches that lead to the answer, in order; the answer stands in the last one's passage."""

    question: Question
    queries: tuple[str, ...]

    @property
    def hops(self) -> int:
        return len(self.queries)


def passages(facts: Facts, seed: int = 0) -> list[Passage]:
    """One passage a person and a town, and a distractor a person that names it and says nothing that is asked."""
    draws = random.Random(f"search world distractors {seed}")
    about_people = [Passage(p.name, _person_text(p, facts)) for p in facts.people]
    about_towns = [Passage(t.name, _town_text(t, facts)) for t in facts.towns]
    distractors = [
        Passage(
            p.name.split()[0], f"{p.name.split()[0]} {draws.choice(facts.people).name.split()[1]} met someone once ."
        )
        for p in facts.people
    ]
    return [*about_people, *about_towns, *distractors]


def _person_text(person: Person, facts: Facts) -> str:
    return f"{person.name} was born in {facts.towns[person.town].name} and is a {person.craft} ."


def _town_text(town: Town, facts: Facts) -> str:
    return f"{town.name} , the {town.byname} , is governed by {facts.people[town.governor].name} ."


def world_questions(facts: Facts) -> list[WorldQuestion]:
    """All questions of the world, in a fixed order; every fifth person and town is held out."""
    found: list[WorldQuestion] = []
    for number, person in enumerate(facts.people):
        found += _numbered(f"person-{number}", number, _about_person(person, facts))
    for number, town in enumerate(facts.towns):
        found += _numbered(f"town-{number}", number, _about_town(town, facts))
    return found


_Asked = tuple[str, tuple[str, ...], tuple[str, ...]]


def _numbered(prefix: str, number: int, asked: Iterator[_Asked]) -> Iterator[WorldQuestion]:
    split = "train" if number % HELD_OUT_EVERY else "test"
    for place, (text, answers, queries) in enumerate(asked):
        question = Question(f"{prefix}-{place}", text, answers, HOPS[len(queries) - 1], split)
        yield WorldQuestion(question, queries)


def _about_person(person: Person, facts: Facts) -> Iterator[_Asked]:
    town = facts.towns[person.town]
    governor = facts.people[town.governor]
    yield f"Where was {person.name} born ?", (town.name, town.byname), (person.name,)
    yield f"What craft has {person.name} ?", (person.craft,), (person.name,)
    two, three = (person.name, town.name), (person.name, town.name, governor.name)
    yield f"Who governs the town where {person.name} was born ?", (governor.name,), two
    yield f"What craft has the governor of the town where {person.name} was born ?", (governor.craft,), three


def _about_town(town: Town, facts: Facts) -> Iterator[_Asked]:
    governor = facts.people[town.governor]
    birth = facts.towns[governor.town]
    yield f"Who governs {town.name} ?", (governor.name,), (town.name,)
    yield f"What craft has the governor of {town.name} ?", (governor.craft,), (town.name, governor.name)
    yield f"Where was the governor of {town.name} born ?", (birth.name, birth.byname), (town.name, governor.name)
