import itertools

import pytest

from dialrl.environment.demo.acts import Act
from dialrl.environment.demo.lines import Symbol
from dialrl.environment.demo.rules import (
    DEFICIT_LEVELS,
    Levels,
    State,
    advance,
    grade,
    initial_deficit,
    is_answered,
    next_symbols,
)
from dialrl.judge.demo import DEFICIT_ITEMS, INDICATORS
from dialrl.state.model import zone_distance
from dialrl.state.rubric import load_rubric

OPEN, GUARDED = False, True


def after(state: State, act: Act, guarded: bool = OPEN) -> State:
    levels = grade(state, guarded, act)
    return advance(state, act, levels, is_answered(state, guarded, act))


def test_a_first_validation_gives_one_point_and_one_trust() -> None:
    state = after(State(need=0), Act.VALIDATE)
    assert (state.gained, state.trust, state.last, state.used[0]) == ((0, 1, 0), 1, Act.VALIDATE, 1)


def test_the_same_act_twice_in_a_row_only_hurts() -> None:
    state = after(State(need=0), Act.VALIDATE)
    assert grade(state, OPEN, Act.VALIDATE) == Levels(a_neg=-1)
    assert after(state, Act.VALIDATE).trust == 1


def test_a_third_validation_is_worth_nothing() -> None:
    state = State(need=0, used=(2, 0, 0, 0, 0), last=Act.PARAPHRASE)
    assert grade(state, OPEN, Act.VALIDATE) == Levels()


def test_an_open_user_answers_after_one_kindness_and_a_guarded_one_after_two() -> None:
    once = after(State(need=0), Act.VALIDATE)
    twice = after(once, Act.PARAPHRASE)
    assert [is_answered(once, guarded, Act.ASK) for guarded in (OPEN, GUARDED)] == [True, False]
    assert is_answered(twice, GUARDED, Act.ASK)
    assert not is_answered(once._replace(raw=True), OPEN, Act.ASK)
    assert not is_answered(once._replace(last=Act.ASK), OPEN, Act.ASK)


def test_a_refused_question_costs_two_points_and_trust() -> None:
    once = after(State(need=0), Act.VALIDATE)
    refused = after(once, Act.ASK, GUARDED)
    assert refused.gained == (0, -1, 0)
    assert (refused.trust, refused.revealed) == (0, False)


def test_the_told_detail_opens_what_is_worth_most() -> None:
    told = State(need=0, revealed=True)
    assert grade(told, OPEN, Act.RESONATE).increment == (3, 3, 0)
    assert grade(told, OPEN, Act.EMPOWER).increment == (0, 0, 3)
    assert grade(told, OPEN, Act.ADVISE).increment == (0, 0, 1)
    assert grade(State(need=0), OPEN, Act.ADVISE).increment == (-2, 0, -2)
    assert grade(State(need=0), OPEN, Act.RESONATE) == grade(State(need=0), OPEN, Act.GARBLED)


def test_a_raw_moment_takes_comfort_and_nothing_else() -> None:
    raw = State(need=0, revealed=True, raw=True)
    assert grade(raw, OPEN, Act.VALIDATE) == Levels(a_prog=1)
    assert grade(raw, OPEN, Act.PARAPHRASE) == Levels()
    for act in (Act.AFFIRM, Act.EMPOWER, Act.ADVISE):
        assert grade(raw, OPEN, act) == Levels(p_neg=-1)


def test_the_next_line_has_probabilities_that_sum_to_one() -> None:
    for act, guarded, revealed, trust in itertools.product(Act, (OPEN, GUARDED), (False, True), range(4)):
        state = State(need=1, revealed=revealed, trust=trust)
        levels, answered = grade(state, guarded, act), is_answered(state, guarded, act)
        symbols = next_symbols(advance(state, act, levels, answered), levels, act, answered, guarded)
        assert sum(symbols.values()) == pytest.approx(1.0)
        assert (Symbol.REVEAL in symbols) == answered


def test_the_user_says_goodbye_when_every_need_is_met() -> None:
    met = State(need=0, gained=(11, 6, 6))
    assert met.distance == 0
    assert next_symbols(met, Levels(), Act.SILENT, False, OPEN) == {Symbol.FAREWELL: 1.0}


def test_the_arithmetic_is_that_of_the_shipped_rubric_and_state_model() -> None:
    rubric = load_rubric("support")
    ranges = [(0, 1, 2), (0, -1, -2)] * 3
    for levels in itertools.product(*ranges):
        named = dict(zip(INDICATORS, levels, strict=True))
        assert Levels(*levels).increment == rubric.increment_from_levels(named)
    for need, item_levels in enumerate(DEFICIT_LEVELS):
        named = dict(zip(DEFICIT_ITEMS, item_levels, strict=True))
        assert initial_deficit(need) == rubric.deficit_from_levels(named)
        assert State(need).distance == pytest.approx(float(zone_distance(initial_deficit(need))))
    assert [initial_deficit(need) for need in range(3)] == [(-12, -7, -7), (-7, -12, -7), (-7, -7, -12)]
