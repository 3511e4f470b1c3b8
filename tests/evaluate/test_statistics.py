"""Intervals against values worked out by hand or known in closed form."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dialrl.errors import InputError
from dialrl.evaluate.statistics import (
    interquartile_mean,
    percentile_interval,
    scenario_bootstrap,
    smallest_detectable_difference,
    standard_error,
    wilson_interval,
)


def test_bootstrap_draws_whole_scenarios_and_weighs_dialogues():
    drawn = scenario_bootstrap([[1.0], [3.0], [8.0]], ["a", "a", "b"], resamples=4000, seed=1)
    values, counts = np.unique(drawn, return_counts=True)
    assert values.tolist() == [2, 4, 8]  # aa, ab or ba, bb
    assert counts / 4000 == pytest.approx([0.25, 0.5, 0.25], abs=0.03)


def test_bootstrap_keeps_the_figures_of_a_dialogue_together():
    value = np.arange(12.0)
    drawn = scenario_bootstrap(np.column_stack([value, 2 * value + 1]), list("abcdefabcdef"), resamples=700)
    assert drawn[:, 1] == pytest.approx(2 * drawn[:, 0] + 1)
    assert drawn.shape == (700, 2)


def test_bootstrap_is_decided_by_its_seed_alone():
    value, names = np.arange(6.0)[:, None], list("abcabc")
    again = scenario_bootstrap(value, names, resamples=50, seed=3)
    assert scenario_bootstrap(value, names, resamples=50, seed=3).tolist() == again.tolist()
    order = [5, 0, 3, 1, 4, 2]
    shuffled = scenario_bootstrap(value[order], [names[i] for i in order], resamples=50, seed=3)
    assert shuffled == pytest.approx(again)
    assert scenario_bootstrap(value, names, resamples=50, seed=4).tolist() != again.tolist()


def test_bootstrap_spread_is_that_of_scenarios_not_of_dialogues():
    names = [str(number) for number in range(30) for _ in range(50)]
    value = np.repeat(np.random.default_rng(0).normal(size=30), 50)[:, None]
    spread = standard_error(scenario_bootstrap(value, names, resamples=4000)[:, 0])
    assert spread == pytest.approx(value[::50].std() / np.sqrt(30), rel=0.05)


def test_one_scenario_has_no_spread():
    drawn = scenario_bootstrap([[1.0], [2.0]], ["a", "a"], resamples=9)
    assert drawn[:, 0].tolist() == [1.5] * 9


@pytest.mark.parametrize("value", [np.zeros((0, 1)), np.zeros(3), np.zeros((2, 1))])
def test_bootstrap_of_other_shapes_is_refused(value):
    with pytest.raises(InputError, match=r"expected \(D, M\)"):
        scenario_bootstrap(value, ["a"] * 3 if len(value) == 3 else [])


def test_percentile_interval_takes_the_central_part():
    interval = percentile_interval(np.arange(101), level=0.90)
    assert (interval.low, interval.high) == pytest.approx((5, 95))


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [(2, 30, 0.0185, 0.2132), (0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (5, 10, 0.2366, 0.7634), (0, 0, 0.0, 1.0)],
)
def test_wilson_interval(successes, trials, low, high):
    interval = wilson_interval(successes, trials)
    assert (interval.low, interval.high) == pytest.approx((low, high), abs=5e-5)


def test_impossible_counts_are_refused():
    with pytest.raises(InputError, match="3 successes of 2 trials"):
        wilson_interval(3, 2)


def test_smallest_detectable_difference():
    assert smallest_detectable_difference(1.0) == pytest.approx((1.95996 + 0.84162) * np.sqrt(2), abs=1e-4)
    assert smallest_detectable_difference(0.0) == 0


def test_standard_error_of_one_value_is_zero():
    assert standard_error([4.0]) == 0


def test_interquartile_mean():
    assert interquartile_mean([40, 1, 3, 2]) == 2.5
    assert interquartile_mean([1, 2, 30]) == pytest.approx(6.5)
    assert interquartile_mean([7]) == 7
    assert interquartile_mean([1, 3]) == 2
    assert interquartile_mean(range(8)) == pytest.approx(np.mean([2, 3, 4, 5]))
    with pytest.raises(InputError, match="no values"):
        interquartile_mean([])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(-50, 50), min_size=1, max_size=12))
def test_interquartile_mean_lies_between_the_quartiles(values):
    low, high = np.percentile(values, [25, 75], method="inverted_cdf")
    mean = interquartile_mean(values)
    assert low - 1e-9 <= mean <= high + 1e-9
    assert interquartile_mean([-value for value in values]) == pytest.approx(-mean, abs=1e-9)
