"""The demo world behind the interfaces of the pipeline: scenarios, sessions, outcome, judge."""

import asyncio

import pytest

from dialrl.environment.base import PolicyReply
from dialrl.environment.demo.scenario import scenario
from dialrl.environment.demo.world import DemoUser
from dialrl.environment.registry import open_environment
from dialrl.errors import InputError, UsageError
from dialrl.judge.registry import open_judge
from dialrl.scenario.message import Message


@pytest.fixture
def demo():
    return open_environment("demo")


def test_splits_are_offered_in_a_fixed_order(demo):
    train, test = demo.scenarios("train"), demo.scenarios("test")
    assert (len(train), len(test)) == (240, 72)
    assert [card.scenario_id for card in train[:2]] == ["demo-train-000", "demo-train-001"]
    assert {card.split for card in test} == {"test"}
    assert demo.scenarios("train") == train
    with pytest.raises(UsageError, match="no split 'dev'; expected one of: train, test"):
        demo.scenarios("dev")


def test_a_scenario_is_found_in_whichever_split(demo):
    assert demo.find("demo-test-003") == demo.scenarios("test")[3]
    with pytest.raises(InputError, match="no scenario 'demo-test-999'"):
        demo.find("demo-test-999")


def test_a_session_says_what_its_user_says(demo):
    card = demo.find("demo-train-005")
    user, session = DemoUser(scenario("train", 5), 11), demo.open(card, 11)

    async def talk():
        said = [await session.opening()]
        for turn, reply in enumerate(("It was brave to say this.", "", "Hm.")):
            said.append(await session.respond(PolicyReply(reply, "stop", turn), None))
        return said

    opening, *answers = asyncio.run(talk())
    assert opening.messages == (Message("user", user.opening()),)
    expected = [user.respond(reply) for reply in ("It was brave to say this.", "", "Hm.")]
    assert [step.messages for step in answers] == [(Message("user", step.text),) for step in expected]
    assert [step.end_reason for step in answers] == [step.end_reason for step in expected]


def test_the_outcome_is_the_distance_taken_away(demo):
    # Zone distance of (-5, -1, 0): one axis 4 below the zone; of (-4, 0, 0): 3.
    assert demo.graded_outcome("turn_limit", (-5.0, -1.0, 0.0), (-4.0, 0.0, 0.0)) == pytest.approx(1.0)


def test_the_judge_assesses_the_card_and_grades_the_text(demo):
    judge = open_judge("demo")
    card = demo.find("demo-train-000")
    opening = Message("user", scenario("train", 0).opening)
    deficit = asyncio.run(judge.assess(card, [opening], 0))
    assert sorted(deficit) == [-12.0, -7.0, -7.0]
    verdict = asyncio.run(judge.grade(card, [opening, Message("assistant", "")], 0, 0))
    assert {grade.level for grade in verdict.grades} == {0}
    with pytest.raises(UsageError, match=r"'demo' was given the options \{'colour': 'red'\}"):
        open_judge("demo", {"colour": "red"})
