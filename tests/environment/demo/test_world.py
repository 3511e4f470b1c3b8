import pytest

from dialrl.environment.demo import DemoScenario, DemoUser, scenario, scenarios
from dialrl.environment.demo.acts import Act
from dialrl.environment.demo.lines import Symbol
from dialrl.environment.demo.policy_data import training_dialogue
from dialrl.environment.demo.rules import TURN_LIMIT
from dialrl.environment.demo.tracker import track
from dialrl.errors import InputError
from dialrl.scenario.message import Message


def first_kind_reply(user: DemoUser) -> str:
    return f"I hear how {user.scenario.feeling} you feel right now."


def test_train_and_test_share_no_pair_of_feeling_and_topic() -> None:
    pairs = {split: {(each.feeling, each.topic) for each in scenarios(split)} for split in ("train", "test")}
    assert len(pairs["train"]) == 240
    assert len(pairs["test"]) == 72
    assert not pairs["train"] & pairs["test"]


def test_every_word_of_the_held_out_scenarios_occurs_in_training() -> None:
    for slot in ("feeling", "topic", "detail"):
        assert {getattr(each, slot) for each in scenarios("test")} <= {
            getattr(each, slot) for each in scenarios("train")
        }


def test_both_splits_hold_the_hidden_profiles_in_the_same_proportions() -> None:
    def share(split: str, profile: tuple[int, bool, bool]) -> float:
        given = scenarios("train" if split == "train" else "test")
        return sum((each.need, each.guarded, each.sounds_guarded) == profile for each in given) / len(given)

    for need in range(3):
        assert share("train", (need, True, True)) == share("test", (need, True, True)) == pytest.approx(1 / 8)
        assert share("train", (need, True, False)) == share("test", (need, True, False)) == pytest.approx(1 / 24)


def test_a_scenario_survives_its_card() -> None:
    given = scenario("test", 5)
    assert DemoScenario.from_card(given.to_card()) == given
    with pytest.raises(InputError, match="demo card has the fields"):
        DemoScenario.from_card({"topic": "exam"})


def test_a_scenario_out_of_range_is_refused() -> None:
    with pytest.raises(InputError, match="test-72 does not exist"):
        scenario("test", 72)


def test_the_opening_is_the_same_for_every_seed_and_later_lines_are_not() -> None:
    users = [DemoUser(scenario("test", 0), seed) for seed in range(20)]
    assert len({user.opening() for user in users}) == 1
    assert len({user.respond(first_kind_reply(user)).text for user in users}) > 1


def test_the_same_replies_and_seed_replay_the_same_dialogue() -> None:
    transcript, _ = training_dialogue(3, scenario=scenario("test", 1))
    user = DemoUser(scenario("test", 1), 3)
    for line in transcript[1::2]:
        user.respond(line.content)
    assert user.transcript == transcript


def test_a_dialogue_ends_at_the_turn_limit_and_takes_no_more() -> None:
    user = DemoUser(scenario("test", 0), 0, turn_limit=2)
    assert user.respond("").end_reason is None
    assert user.respond("").end_reason == "turn_limit"
    with pytest.raises(InputError, match="ended with 'turn_limit' after 2 turns"):
        user.respond("")


def test_an_open_user_tells_the_detail_after_kindness_and_a_question() -> None:
    given = next(each for each in scenarios("test") if not each.guarded)
    steady = (DemoUser(given, seed) for seed in range(100))
    user = next(user for user in steady if user.respond(first_kind_reply(user)).symbol is not Symbol.RAW)
    step = user.respond(f"What makes the {given.topic} so heavy?")
    assert (step.act, step.symbol) == (Act.ASK, Symbol.REVEAL)
    assert f"my {given.detail}" in step.text


def test_the_tracker_reads_the_users_own_state_from_the_text() -> None:
    for seed in range(40):
        given = scenarios("test")[seed]
        user = DemoUser(given, seed)
        transcript, _ = training_dialogue(seed, scenario=given)
        for line in transcript[1::2]:
            assert track(user.transcript).state == user.state
            user.respond(line.content)
        assert len(track(user.transcript).turns) == user.turn <= TURN_LIMIT


def test_the_tracker_refuses_what_is_no_demo_dialogue() -> None:
    with pytest.raises(InputError, match="begins with one of the demo user's opening lines"):
        track([Message("user", "Hello.")])
    with pytest.raises(InputError, match="alternates user and assistant; line 1 is by 'user'"):
        track([Message("user", scenario("test", 0).opening)] * 2)
