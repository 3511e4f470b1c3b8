"""How the world is played: by an oracle that makes every search, and by a speaker who answers too early.

The early speaker's dialogues teach the base policy: its calls are well-formed and its words are copied, but it answers
before it knows, so that there is everything to choose from and much to gain. Pure text; needs no model.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from dialrl.environment.search.retriever import Passage
from dialrl.environment.search.world.facts import CRAFTS, FAMILY, GIVEN, TOWN_FIRST, TOWN_SECOND
from dialrl.environment.search.world.texts import WorldQuestion
from dialrl.scenario.message import Message

CALL_BEGIN, CALL_END = '<tool_call>{"name": "search", "arguments": {"query": "', '"}}</tool_call>'
ANSWER_BEGIN, ANSWER_END = "<answer>", "</answer>"


def call(query: str) -> str:
    """A search. The space before the query makes its first word the token that it is in a passage."""
    return f"{CALL_BEGIN} {query}{CALL_END}"


def answer(text: str) -> str:
    """An answer, with the same space."""
    return f"{ANSWER_BEGIN} {text}{ANSWER_END}"


@dataclass(frozen=True)
class Habit:
    """``early``: probability of answering before every search is made. ``again``: of repeating the search before."""

    early: float = 0.62
    again: float = 0.06


ORACLE = Habit(early=0.0, again=0.0)


def replies(asked: WorldQuestion, habit: Habit, draws: random.Random) -> list[str]:
    """The replies of one dialogue: searches, then an answer, right only if every search was made.

    Example, the oracle on a question of two hops: call, call, answer.
    """
    said = list[str]()
    for number, query in enumerate(asked.queries):
        if draws.random() < habit.early:
            return [*said, answer(_guess(asked, number, draws))]
        if said and draws.random() < habit.again:
            said.append(said[-1])
        said.append(call(query))
    return [*said, answer(asked.question.answers[0])]


def _guess(asked: WorldQuestion, made: int, draws: random.Random) -> str:
    """What someone says who does not know: what the last search would be about, or a name of the right kind."""
    if made:
        return asked.queries[made]  # the next thing to look up: the last passage named it
    first = asked.question.question.split()[0]
    if first == "Where":
        return f"{draws.choice(TOWN_FIRST)} {draws.choice(TOWN_SECOND)}"
    if first == "Who":
        return f"{draws.choice(GIVEN)} {draws.choice(FAMILY)}"
    return draws.choice(CRAFTS)


def dialogue(asked: WorldQuestion, said: Sequence[str], found: dict[str, list[Passage]]) -> list[Message]:
    """The transcript: question, replies, and what the searches found (passages by query)."""
    messages = [Message("user", asked.question.question)]
    for text in said:
        messages.append(Message("assistant", text))
        if text.startswith(CALL_BEGIN):
            query = text.removeprefix(CALL_BEGIN).removesuffix(CALL_END).strip()
            messages.append(Message("tool", shown(found[query]), name="search"))
    return messages


def shown(found: Sequence[Passage]) -> str:
    """Passages as the environment shows them."""
    return "\n".join(f"[{n}] {p.title}: {p.text}" for n, p in enumerate(found, start=1))
