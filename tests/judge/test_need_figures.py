"""Figures over scenarios by hand: a mean of means, and the standard error of a sample."""

import pytest

from dialrl.judge.need_figures import GainFigures
from dialrl.judge.need_sets import NeedSet


def gained(*logs):
    """Turns whose log q rises by so much; the control does not move."""
    control = {"belief_before_shuffled": -1.0, "belief_after_shuffled": -1.0}
    return [{"belief_before": -1.0, "belief_after": -1.0 + log, "belief_alias": "a", **control} for log in logs]


def test_scenarios_weigh_alike_and_their_standard_error_is_that_of_a_sample():
    figures = GainFigures()
    figures.add("one", gained(0.1, 0.3), NeedSet(("a", "b"), 0, None))
    figures.add("two", gained(0.4), NeedSet(("a", "b"), 0, None))
    gain = figures.to_json()["gain"]["log"]  # means .2 and .4: .3; sample deviation .1414 over the root of 2
    assert gain == pytest.approx({"mean": 0.3, "standard_error": 0.1})
