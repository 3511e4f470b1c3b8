"""Each stop rule fires on the turn worked out by hand, and replay, live tracking and whole files agree."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dialrl.errors import InputError, UsageError
from dialrl.state.model import positions_after
from dialrl.state.stop import REASONS, Stop, StopRules, StopTracker, stop_turn, stops, success_kind

EVERY_RULE = StopRules(oscillation=True)


def replay(deficit, increments, rules=EVERY_RULE):
    known = [[np.nan] * len(deficit) if v is None else v for v in increments]
    return stop_turn(positions_after(known, deficit), deficit, increments, rules)


def live(deficit, increments, rules=EVERY_RULE):
    tracker = StopTracker(deficit, rules)
    for increment in increments:
        tracker.add(increment)
    return tracker.stop


# success ------------------------------------------------------------------------------------------------------------


def test_no_rule_on_the_state_fires_before_min_turns():
    met_at_once = [(30, 30)] + [(0, 0)] * 11
    assert replay((-20, -20), met_at_once[:11]) == Stop(None, None)
    assert replay((-20, -20), met_at_once) == Stop(11, "success")
    assert replay((-20, -20), met_at_once, StopRules(min_turns=3)) == Stop(2, "success")


def test_success_is_the_crossing_of_the_plane_through_the_origin():
    rules = StopRules(min_turns=1)
    assert replay((-3, -4), [(3, 3.9)], rules) == Stop(None, None)  # P . v* = -0.08, inside the direction threshold
    assert replay((-3, -4), [(3, 4)], rules) == Stop(0, "success")
    assert replay((-3, -4), [(11, -2)], rules) == Stop(0, "success")  # 8 * 3 - 6 * 4 = 0: surplus pays for deficit


def test_success_near_the_origin_is_geometric_and_elsewhere_positional():
    assert success_kind((0.3, 0.4), (-3, -4), StopRules()) == "geometric"
    assert success_kind((0.3, 0.41), (-3, -4), StopRules()) == "positional"
    assert success_kind((0.3, 0.4), (-3, -4), StopRules(alpha=0.05)) == "positional"


def test_tenths_that_add_up_to_the_deficit_reach_it():
    assert positions_after([(0.1, 0.1)] * 12, (-1.2, -1.2))[-1, 0] < 0  # by rounding alone
    assert replay((-1.2, -1.2), [(0.1, 0.1)] * 12) == Stop(11, "success")


def test_without_any_need_min_turns_is_a_success():
    assert replay((0, 0, 0), [(-1, -1, -1)] * 13) == Stop(11, "success")
    assert success_kind((0, 0), (0, 0), StopRules()) == "geometric"


# failure ------------------------------------------------------------------------------------------------------------


def test_collapse_needs_five_negative_steps_in_a_row():
    up, down = (1, 1), (-1, 0)
    assert replay((-20, -20), [up] * 8 + [down] * 4) == Stop(None, None)
    assert replay((-20, -20), [up] * 8 + [down] * 5) == Stop(12, "collapse")
    assert replay((-20, -20), [up] * 8 + [down] * 4 + [up] + [down] * 4) == Stop(None, None)


def test_collapse_before_min_turns_waits_for_min_turns():
    assert replay((-20, -20), [(-1, 0)] * 14) == Stop(11, "collapse")
    assert replay((-20, -20), [(-1, 0)] * 14, StopRules(min_turns=1)) == Stop(4, "collapse")


def test_a_missing_judgement_is_a_step_of_zero_and_breaks_a_collapse():
    down = (-1, 0)
    assert replay((-20, -20), [down] * 7 + [None] + [down] * 4) == Stop(None, None)
    assert replay((-20, -20), [down] * 7 + [None] + [down] * 5) == Stop(12, "collapse")


def test_a_sideways_step_is_not_negative():
    assert replay((-3, -4), [(-1, 0)] * 10 + [(-4, 3), (-1, 0), (-1, 0)]) == Stop(None, None)


def regressing(zeros_at=(4, 9), size=0.2):
    """12 turns around (-20, 0): 10 steps of -size, steps of 0 that keep any five from being all negative."""
    return [(0.0, 0.0) if k in zeros_at else (-size, 0.0) for k in range(12)]


def test_regression_is_standing_still_while_sliding_back():
    # rows 4-11: steps -.2 but for two zeros at rows 4, 9 -> 6 of 8 negative, sum -1.2; |P| of rows 7-11 spread .25
    assert replay((-20, 0), regressing()) == Stop(11, "regression")


def test_regression_needs_a_loss_above_one():
    assert replay((-20, 0), regressing(size=0.16)) == Stop(None, None)  # sum -.96


def test_regression_needs_more_than_seven_tenths_negative():
    assert replay((-20, 0), regressing(zeros_at=(4, 7, 9), size=0.25)) == Stop(None, None)  # 5 of 8


def test_regression_needs_lengths_that_stay_within_half_a_unit():
    # rows 7-11 at size .5: lengths 23.5, 24, 24, 24.5, 25 -> sample standard deviation .570
    assert replay((-20, 0), regressing(size=0.5)) == Stop(None, None)
    # at size .4: 22.8, 23.2, 23.2, 23.6, 24.0 -> .456
    assert replay((-20, 0), regressing(size=0.4)) == Stop(11, "regression")


def test_the_spread_of_lengths_is_that_of_a_sample():
    # at size .45: 22.65, 23.1, 23.1, 23.55, 24.0 -> .513 as a sample of five, .459 as a population
    assert replay((-20, 0), regressing(size=0.45)) == Stop(None, None)


# oscillation and limits ---------------------------------------------------------------------------------------------


def test_oscillation_moves_and_gets_nowhere():
    swing = [(2, 0), (-2, 0)] * 6
    assert replay((-20, -20), swing) == Stop(11, "oscillation")
    assert replay((-20, -20), swing, StopRules()) == Stop(None, None)
    assert replay((-20, -20), [(0, 0)] * 12) == Stop(None, None)  # does not move at all


def test_oscillation_needs_three_units_of_way_and_three_suffice():
    assert replay((-20, -20), [(0.25, 0), (-0.25, 0)] * 6) == Stop(11, "oscillation")  # 12 x .25
    assert replay((-20, -20), [(0.2, 0), (-0.2, 0)] * 6) == Stop(None, None)


def test_oscillation_compares_the_ends_of_twelve_positions():
    drift = [(9, 9)] + [(1, 0)] * 2 + [(0, 0)] * 9  # ends of rows 0-11 are 2 apart; the first step lies before them
    assert replay((-20, -20), drift) == Stop(11, "oscillation")
    drift[3] = (1, 0)
    assert replay((-20, -20), drift) == Stop(None, None)


def test_oscillation_needs_twelve_turns_whatever_min_turns_says():
    swing = [(2, 0), (-2, 0)] * 6
    assert replay((-20, -20), swing, StopRules(min_turns=2, oscillation=True)) == Stop(11, "oscillation")


def test_turn_limit_is_a_parameter_and_comes_after_the_other_rules():
    assert replay((-20, -20), [(1, 0)] * 5, StopRules(max_turns=3)) == Stop(2, "turn_limit")
    assert replay((-20, -20), [(2, 2)] * 12, StopRules(max_turns=12)) == Stop(11, "success")


def test_each_rule_can_be_switched_off():
    assert replay((-20, -20), [(2, 2)] * 12, StopRules(success=False)) == Stop(None, None)
    assert replay((-20, -20), [(-1, 0)] * 12, StopRules(collapse=False)) == Stop(None, None)
    assert replay((-20, 0), regressing(), StopRules(regression=False)) == Stop(None, None)


def test_the_first_stop_counts_and_later_turns_change_nothing():
    path = [(2, 2)] * 12 + [(-30, -30)] * 6
    assert replay((-20, -20), path) == live((-20, -20), path) == Stop(11, "success")


# shapes -------------------------------------------------------------------------------------------------------------


def test_unequal_numbers_of_positions_and_increments_are_refused():
    with pytest.raises(InputError, match=r"\(2, 3\) positions but \(1, 3\) increments"):
        stop_turn(np.zeros((2, 3)), (-1, -1, -1), [(0, 0, 0)], StopRules())


def test_tracker_refuses_an_increment_of_other_axes():
    with pytest.raises(InputError, match="2 axes"):
        StopTracker((-1, -1), StopRules()).add((1, 1, 1))


def test_rules_refuse_values_out_of_bounds():
    from dialrl.config import validated

    with pytest.raises(UsageError, match="min_turns"):
        validated(StopRules, {"min_turns": 0}, where="test")


# agreement ----------------------------------------------------------------------------------------------------------

increments = st.lists(
    st.one_of(st.none(), st.tuples(*[st.sampled_from([-2.0, -0.2, -0.1, 0.0, 0.1, 1.0, 3.0])] * 2)), max_size=40
)
deficits = st.tuples(*[st.sampled_from([0.0, -0.3, -3.0, -7.0])] * 2)
rules = st.builds(
    StopRules,
    min_turns=st.integers(1, 14),
    max_turns=st.one_of(st.none(), st.integers(1, 40)),
    collapse=st.booleans(),
    success=st.booleans(),
    oscillation=st.booleans(),
)


@settings(max_examples=150, deadline=None)
@given(deficits, increments, rules)
def test_replay_equals_live_tracking(deficit, path, any_rules):
    if path:
        assert replay(deficit, path, any_rules) == live(deficit, path, any_rules)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(deficits, increments.filter(len)), min_size=1, max_size=6), rules)
def test_a_whole_file_equals_its_dialogues_one_by_one(dialogues, any_rules):
    nan = (np.nan, np.nan)
    paths = [np.array([nan if v is None else v for v in path]) for _, path in dialogues]
    deficit_KA = np.concatenate([np.tile(d, (len(p), 1)) for (d, _), p in zip(dialogues, paths, strict=True)])
    position_KA = np.concatenate([positions_after(p, d) for (d, _), p in zip(dialogues, paths, strict=True)])
    start_D = np.cumsum([0, *map(len, paths)])
    turn_D, code_D = stops(position_KA, deficit_KA, np.concatenate(paths), start_D, any_rules)
    together = [Stop(None if t < 0 else t, REASONS[c]) for t, c in zip(turn_D, code_D, strict=True)]
    assert together == [replay(deficit, path, any_rules) for deficit, path in dialogues]
