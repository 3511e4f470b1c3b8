import pytest

from dialrl.environment.demo import scenarios
from dialrl.environment.demo.policy_data import training_dialogue
from dialrl.environment.demo.rules import zone_distance
from dialrl.errors import InputError
from dialrl.judge.demo import INDICATORS, DemoJudge
from dialrl.scenario.message import Message
from dialrl.state.rubric import load_rubric

GIVEN = next(each for each in scenarios("test") if each.need == 0 and not each.guarded)


def dialogue(*replies_and_lines: str) -> list[Message]:
    roles = ("assistant", "user")
    lines = [Message(roles[place % 2], line) for place, line in enumerate(replies_and_lines)]  # type: ignore[arg-type]
    return [Message("user", GIVEN.opening), *lines]


def levels(transcript: list[Message], turn: int) -> dict[str, int]:
    return {grade.indicator: grade.level for grade in DemoJudge().grade(GIVEN, transcript, turn).grades}


def test_it_grades_the_reply_asked_for_and_quotes_it() -> None:
    reply = f"So the {GIVEN.topic} stays on your mind."
    transcript = dialogue(reply, "Yes, that is how it is.", "I see.")
    verdict = DemoJudge().grade(GIVEN, transcript, 0)
    assert verdict.status == "ok"
    assert [(grade.indicator, grade.level) for grade in verdict.grades] == list(
        zip(INDICATORS, (1, 0, 0, 0, 0, 0), strict=True)
    )
    assert verdict.grades[0].evidence == reply
    assert levels(transcript, 1)["C.Neg"] == -1


def test_what_comes_after_a_reply_does_not_change_its_grade() -> None:
    transcript = dialogue("I see.", "That does not help me.", "Okay, go on.")
    assert DemoJudge().grade(GIVEN, transcript[:2], 0) == DemoJudge().grade(GIVEN, transcript, 0)


def test_the_deficit_is_the_sum_of_level_times_unit() -> None:
    assert DemoJudge().assess(GIVEN) == (-12.0, -7.0, -7.0)
    assert load_rubric("support").deficit_from_levels(DemoJudge().assess_levels(GIVEN)) == (-12.0, -7.0, -7.0)


def test_its_grades_give_the_rewards_of_the_world() -> None:
    judge, rubric = DemoJudge(), load_rubric("support")
    for seed, given in enumerate(scenarios("test")[:30]):
        transcript, total = training_dialogue(seed, scenario=given)
        position = judge.assess(given)
        assert judge.grade_dialogue(given, transcript) == [
            judge.grade(given, transcript, turn) for turn in range(len(transcript) // 2)
        ]
        for turn in range(len(transcript) // 2):
            named = {grade.indicator: grade.level for grade in judge.grade(given, transcript, turn).grades}
            increment = rubric.increment_from_levels(named)
            position = tuple(place + step for place, step in zip(position, increment, strict=True))  # type: ignore[assignment]
        assert zone_distance(judge.assess(given)) - zone_distance(position) == pytest.approx(total)  # type: ignore[arg-type]


def test_a_missing_judgement_is_missing_and_not_a_number() -> None:
    verdict = DemoJudge(missing=1.0).grade(GIVEN, dialogue("I see."), 0)
    assert (verdict.status, verdict.grades) == ("missing", ())
    assert verdict.error


def test_noise_moves_levels_by_one_step_within_their_range() -> None:
    judge, transcript = DemoJudge(noise=1.0), dialogue(f"So the {GIVEN.topic} stays on your mind.")
    assert [grade.level for grade in judge.grade(GIVEN, transcript, 0, seed=1).grades[1:]] == [-1, 1, -1, 1, -1]
    assert {judge.grade(GIVEN, transcript, 0, seed=seed).grades[0].level for seed in range(20)} == {0, 2}
    assert judge.grade(GIVEN, transcript, 0, seed=3) == judge.grade(GIVEN, transcript, 0, seed=3)


def test_a_turn_that_was_never_spoken_is_refused() -> None:
    with pytest.raises(InputError, match="has 1 replies, no turn 1"):
        DemoJudge().grade(GIVEN, dialogue("I see.", "Hm. It is what it is."), 1)


def test_a_probability_out_of_range_is_refused() -> None:
    with pytest.raises(InputError, match="'noise' is a probability"):
        DemoJudge(noise=1.5)
