"""The embedded world: its facts, its files, and that an oracle's searches through BM25 always lead to the answer."""

import asyncio
import random
from collections import Counter

import pytest

from dialrl.environment.base import PolicyReply
from dialrl.environment.registry import open_environment
from dialrl.environment.search.grammar import Answer, Search, read_reply
from dialrl.environment.search.world.facts import make_facts
from dialrl.environment.search.world.files import PASSAGES, QUESTIONS, passages_text, questions_text
from dialrl.environment.search.world.lessons import lesson
from dialrl.environment.search.world.speech import ORACLE, Habit, replies
from dialrl.environment.search.world.texts import passages, world_questions
from dialrl.resources import resource
from dialrl.scenario.answers import best_over, word_set_f1

OPTIONS = {
    "questions": QUESTIONS, "retriever_options": {"passages": PASSAGES}, "system_prompt": "", "top_k": 2,
    "max_queries": 1,
}  # fmt: skip


def test_the_shipped_files_are_what_the_code_makes():
    assert resource(QUESTIONS).read_text(encoding="utf-8") == questions_text()
    assert resource(PASSAGES).read_text(encoding="utf-8") == passages_text()


def test_facts_are_a_function_of_the_seed_and_names_are_one_of_a_kind():
    facts = make_facts(3)
    assert facts == make_facts(3) != make_facts(4)
    names = [one.name for one in (*facts.people, *facts.towns)] + [town.byname for town in facts.towns]
    assert len(set(names)) == len(names)


def test_bynames_share_no_word_with_names_so_only_an_alias_list_accepts_them():
    for town in make_facts().towns:
        assert word_set_f1(town.name, town.byname) == 0.0


def test_questions_have_one_to_three_hops_and_a_fifth_is_held_out():
    found = Counter((asked.question.source, asked.question.split) for asked in world_questions(make_facts()))
    assert found == {
        ("one-hop", "train"): 275, ("two-hop", "train"): 166, ("three-hop", "train"): 128,
        ("one-hop", "test"): 69, ("two-hop", "test"): 42, ("three-hop", "test"): 32,
    }  # fmt: skip


def test_each_person_has_a_distractor_that_answers_nothing():
    facts = make_facts()
    distractors = passages(facts)[-len(facts.people) :]
    assert all("born" not in passage.text and " is " not in passage.text for passage in distractors)


@pytest.fixture(scope="module")
def environment():
    return open_environment("search", OPTIONS)


def play(environment, asked, said):
    """(texts that the tool said, last step)."""
    session = environment.open(environment.find(asked.question.id), 0)

    async def steps():
        told = []
        for turn, text in enumerate(said):
            step = await session.respond(PolicyReply(text, "stop", turn), None)
            told += [message.content for message in step.messages]
        return told, step

    return asyncio.run(steps())


def test_an_oracle_finds_every_answer(environment):
    for asked in world_questions(make_facts())[::7]:
        told, last = play(environment, asked, replies(asked, ORACLE, random.Random(0)))
        assert (last.end_reason, last.outcome) == ("answer", 1.0)
        assert len(told) == asked.hops
        for query, text in zip((*asked.queries[1:], asked.question.answers[0]), told, strict=True):
            assert query in text.splitlines()[0]  # the first passage names what comes next


def test_who_answers_before_the_last_search_is_wrong_more_often_than_not():
    asked = [one for one in world_questions(make_facts()) if one.question.split == "test"]
    outcomes = []
    for number, one in enumerate(asked):
        *_, last = replies(one, Habit(early=1.0), random.Random(number))
        given = read_reply(last, max_queries=1)
        assert isinstance(given, Answer)
        outcomes.append(best_over(word_set_f1, given.text, one.question.answers))
    assert sum(outcomes) / len(outcomes) < 0.1


def test_a_lesson_is_a_function_of_its_number_and_each_reply_is_well_formed():
    assert lesson(40, oracle=True) == lesson(40, oracle=True)
    for number in range(0, 200, 9):
        for message in lesson(number, oracle=number % 2 == 0):
            if message.role == "assistant":
                assert isinstance(read_reply(message.content, max_queries=1), Search | Answer)


def test_lessons_show_what_the_environment_shows(environment):
    """The oracle's lesson and a dialogue of the environment differ in names alone."""
    said = next(message.content for message in lesson(16, oracle=True) if message.role == "tool")
    asked = next(one for one in world_questions(make_facts()) if one.hops == 1)
    told, _ = play(environment, asked, replies(asked, ORACLE, random.Random(0)))
    assert [line[:4] for line in said.splitlines()] == [line[:4] for line in told[0].splitlines()] == ["[1] ", "[2] "]
