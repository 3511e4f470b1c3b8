"""By hand: which turns count, which values are missing or not applicable, and what the options of a channel change."""

from typing import Any

import pytest
from tests.returns.test_channels import channel

from credit_files import rows_to_columns
from dialrl.returns.config import ReturnsConfig
from dialrl.returns.work import add_returns
from dialrl.trajectory.rows import rows_to_table


@pytest.mark.parametrize(("stop", "kept"), [(1, False), (None, True)])
def test_the_share_that_is_missing_is_one_of_the_turns_that_count(stop: int | None, kept: bool) -> None:
    """One of the two turns up to the stop is missing, of all four a quarter; .4 may be."""
    rows = [
        {"group_id": "g", "sample": 0, "turn": turn, "reward_given": reward, "stop_turn": stop}
        for turn, reward in enumerate((1.0, None, 5.0, 5.0))
    ]
    config = ReturnsConfig(reward=("given",), max_missing=0.4, gamma=1.0)
    made = rows_to_columns(add_returns(rows_to_table(rows), config))
    assert (made["return"][0] is not None) is kept


def test_a_turn_that_ends_in_a_format_failure_has_no_gain() -> None:
    rows: list[dict[str, Any]] = [
        {"belief_before": -2.0, "belief_after": -1.0},
        {"belief_before": -1.0, "belief_after": -1.5, "end_reason": "format_failure"},
    ]
    assert channel("information-gain", rows) == ([1.0, None], ["known", "not_applicable"])


def test_the_outcome_of_a_dialogue_that_failed_is_missing() -> None:
    rows = [{"outcome": None}, {"outcome": 1.0, "end_reason": "answer", "status": "error"}]
    assert channel("outcome", rows) == ([None, None], ["not_applicable", "missing"])


def test_distance_takes_zone_and_axis_weights() -> None:
    rows = [{"deficit": [-3.0, -4.0], "position": [-3.0, -4.0], "increment": [0.0, 0.0]}]
    assert channel("distance", rows, zone_epsilon=0.0)[0] == pytest.approx([-5.0])
    assert channel("distance", rows, axis_weights=(1.0, 0.0))[0] == pytest.approx([-2.0])


@pytest.mark.parametrize("name", ["incremental-distance", "distance", "potential"])
def test_a_position_that_is_an_estimate_earns_nothing(name: str) -> None:
    rows = [{"deficit": [-3.0], "position": [-3.0], "increment": [0.0], "position_estimated": True}]
    assert channel(name, rows) == ([None], ["missing"])
