"""Supervised dialogues that teach the base policy of the search world: right words, answers too early.

Every sixteen dialogues are about a world of their own, so that nothing can be learnt by heart: what is said must be
copied. The first steps show the oracle, whose dialogues are full of names to copy; the rest the early speaker. Not
here: the training.
"""

import random
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache

from dialrl.environment.search.retriever import Passage
from dialrl.environment.search.world.facts import make_facts
from dialrl.environment.search.world.speech import ORACLE, Habit, dialogue, replies
from dialrl.environment.search.world.texts import WorldQuestion, passages, world_questions
from dialrl.scenario.message import Message

_FIRST_LESSON_WORLD = 1  # world 0 is the one that is played


@lru_cache(maxsize=4)
def _world(number: int) -> tuple[list[WorldQuestion], dict[str, Passage], dict[str, list[Passage]]]:
    """Questions, passages by title, and passages by word, of the lesson world ``number``."""
    facts = make_facts(_FIRST_LESSON_WORLD + number)
    found = passages(facts, _FIRST_LESSON_WORLD + number)
    by_word: dict[str, list[Passage]] = defaultdict(list)
    for passage in found:
        for word in set(passage.title.split()):
            by_word[word].append(passage)
    return world_questions(facts), {passage.title: passage for passage in found}, by_word


def lesson(number: int, *, oracle: bool) -> Sequence[Message]:
    """Dialogue ``number``: a pure function of it. Sixteen in a row are about one world."""
    questions, by_title, by_word = _world(number // 16)
    draws = random.Random(f"search lesson {number}")
    asked = _evenly(questions, draws)
    said = replies(asked, ORACLE if oracle else Habit(), draws)
    found = {query: _found(query, by_title, by_word, draws) for query in asked.queries}
    return dialogue(asked, said, found)


def _evenly(questions: Sequence[WorldQuestion], draws: random.Random) -> WorldQuestion:
    """A question of one, two or three hops, each as often."""
    hops = draws.choice((1, 2, 3))
    return draws.choice([asked for asked in questions if asked.hops == hops])


def _found(
    query: str, by_title: dict[str, Passage], by_word: dict[str, list[Passage]], draws: random.Random
) -> list[Passage]:
    """The passage about the query, and another one that shares a word with it."""
    first = by_title[query]
    others = [passage for word in query.split() for passage in by_word[word] if passage is not first]
    return [first, *([draws.choice(others)] if others else [])]
