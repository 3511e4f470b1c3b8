"""Every channel gives the values of docs/credit.md 1, worked out by hand."""

from typing import Any

import pytest

from credit_files import rows_to_columns
from dialrl.errors import UsageError
from dialrl.returns.channels import chosen_channels
from dialrl.returns.config import ReturnsConfig
from dialrl.returns.work import add_returns
from dialrl.trajectory.rows import rows_to_table


def channel(name: str, rows: list[dict[str, Any]], **options: Any) -> tuple[list[Any], list[str]]:
    """The channel's values and statuses on ``rows`` (one dialogue each of group g unless they say so)."""
    full = [{"group_id": "g", "sample": 0, "turn": turn, **row} for turn, row in enumerate(rows)]
    made = rows_to_columns(add_returns(rows_to_table(full), ReturnsConfig(reward=(name,), **options)))
    return made[f"reward_{name}"], made[f"reward_{name}_status"]


DEFICIT = [-17.0, -18.0, -13.0]
JUDGED = [
    {"deficit": DEFICIT, "increment": [1.0, 1.0, 1.0], "position": [-16.0, -17.0, -12.0]},
    {"deficit": DEFICIT, "increment": [0.0, 2.0, 0.0], "position": [-16.0, -15.0, -12.0]},
]
UNJUDGED = {
    "deficit": DEFICIT,
    "increment": None,
    "position": [-16.0, -17.0, -12.0],
    "position_estimated": True,
    "judge_status": "missing",
}


def test_incremental_distance_is_the_way_moved_towards_the_zone() -> None:
    values, statuses = channel("incremental-distance", JUDGED)
    # d: (16,17,12) -> sqrt(689) = 26.2488; (15,16,11) -> sqrt(602) = 24.5357; (15,14,11) -> sqrt(542) = 23.2809
    assert values == pytest.approx([1.7131, 1.2548], abs=5e-5)
    assert statuses == ["known", "known"]


def test_incremental_distance_telescopes_over_a_missing_turn() -> None:
    values, statuses = channel("incremental-distance", [JUDGED[0], UNJUDGED, {**JUDGED[1], "turn": 2}])
    assert statuses == ["known", "missing", "known"]
    assert values[1] is None
    assert values[0] + values[2] == pytest.approx(26.2488 - 23.2809, abs=1e-4)


def test_axis_weights_stand_inside_the_root() -> None:
    values, _ = channel("incremental-distance", JUDGED[:1], axis_weights=(1.0, 0.0, 0.0))
    assert values == pytest.approx([16.0 - 15.0])


def test_the_zone_begins_at_minus_epsilon() -> None:
    rows = [{"deficit": [-3.0], "increment": [3.0], "position": [0.0]}]
    assert channel("incremental-distance", rows)[0] == [2.0]
    assert channel("incremental-distance", rows, zone_epsilon=0.0)[0] == [3.0]


def test_distance_is_the_negative_distance_after_the_turn() -> None:
    assert channel("distance", JUDGED)[0] == pytest.approx([-24.5357, -23.2809], abs=5e-5)
    assert channel("distance", [UNJUDGED])[1] == ["missing"]


def test_increment_sum_and_energy_read_the_increment() -> None:
    assert channel("increment-sum", JUDGED)[0] == [3.0, 2.0]
    assert channel("energy", JUDGED)[0] == pytest.approx([48 / 27.9643, 36 / 27.9643], abs=5e-5)
    assert channel("energy", [JUDGED[0], UNJUDGED])[1] == ["known", "missing"]


def test_potential_is_the_discounted_gain_in_nearness_to_the_origin() -> None:
    rows = [
        {"deficit": [-9.0, 0.0], "increment": [9.0, 0.0], "position": [0.0, 0.0]},
        {"deficit": [-9.0, 0.0], "increment": [9.0, 0.0], "position": [9.0, 0.0]},
    ]
    # Phi = 9 / (9 + |P|): 0.5, 1, 0.5
    assert channel("potential", rows)[0] == pytest.approx([0.99 - 0.5, 0.99 * 0.5 - 1.0])
    assert channel("potential", rows, potential_gamma=1.0, potential_scale=3.0)[0] == pytest.approx([0.75, -0.75])


BELIEFS = [
    {"belief_before": -2.0, "belief_after": -1.0},
    {"belief_before": -1.0, "belief_after": -1.5},
    {"belief_before": -1.5, "end_reason": "answer", "outcome": 1.0},
]


def test_information_gain_is_not_applicable_on_the_answer_turn() -> None:
    assert channel("information-gain", BELIEFS) == ([1.0, -0.5, None], ["known", "known", "not_applicable"])


def test_information_gain_of_probabilities_is_the_difference_of_exponentials() -> None:
    values, _ = channel("information-gain", BELIEFS, belief="probability")
    assert values[:2] == pytest.approx([0.36788 - 0.13534, 0.22313 - 0.36788], abs=2e-5)


def test_a_dialogue_cut_by_the_turn_limit_keeps_the_gain_of_its_last_turn() -> None:
    rows = [*BELIEFS[:1], {**BELIEFS[1], "end_reason": "turn_limit"}]
    assert channel("information-gain", rows) == ([1.0, -0.5], ["known", "known"])


def test_a_belief_that_is_not_known_costs_the_two_gains_it_touches() -> None:
    rows = [
        {"belief_before": -2.0, "belief_after": -1.0},
        {"belief_before": -1.0, "belief_after": None},
        {"belief_before": None, "belief_after": -0.5},
        {"belief_before": -0.5, "belief_after": -0.25},
        {"end_reason": "answer"},
    ]
    values, statuses = channel("information-gain", rows)
    assert values == [1.0, None, None, 0.25, None]
    assert statuses == ["known", "missing", "missing", "known", "not_applicable"]


def test_outcome_stands_on_the_last_turn_and_nowhere_else() -> None:
    rows = [{"outcome": None}, {"outcome": 0.75, "end_reason": "answer"}]
    assert channel("outcome", rows) == ([None, 0.75], ["not_applicable", "known"])


@pytest.mark.parametrize("last", [{"outcome": None}, {"outcome": 1.0, "end_reason": "error"}])
def test_an_outcome_is_missing_when_it_is_unknown_or_the_dialogue_broke(last: dict[str, Any]) -> None:
    rows = [{"outcome": None}, {"outcome": None}, {"outcome": None}, {"end_reason": "answer", **last}]
    assert channel("outcome", rows)[1] == ["not_applicable"] * 3 + ["missing"]


@pytest.mark.parametrize(
    ("ending", "value"), [("format_failure", -2.0), ("turn_limit", -0.5), ("answer", 0.0), ("error", 0.0), (None, 0.0)]
)
def test_format_punishes_the_ending(ending: str | None, value: float) -> None:
    rows = [{"reply": "a"}, {"reply": "b", "end_reason": ending}]
    assert channel("format", rows, limit_penalty=-0.5) == ([None, value], ["not_applicable", "known"])


def test_dialogue_values_move_to_the_last_turn_that_counts() -> None:
    rows = [{"outcome": None, "stop_turn": 0}, {"outcome": 0.5, "stop_turn": 0}]
    assert channel("outcome", rows) == ([0.5, None], ["known", "not_applicable"])
    assert channel("outcome", rows, until="end") == ([None, 0.5], ["not_applicable", "known"])


def test_kl_costs_beta_times_the_turns_own_tokens_and_no_user_tokens() -> None:
    # Field case 5: kl [.1, 5, -7, .1] with mask [1, 0, 0, 1]; beta 1, reward 1 at the end.
    full = [{"group_id": "g", "sample": 0, "turn": turn, "kl": 0.1, "outcome": 1.0} for turn in (0, 1)]
    config = ReturnsConfig(reward=("kl", "outcome"), kl_beta=1.0, gamma=1.0)
    made = rows_to_columns(add_returns(rows_to_table(full), config))
    assert made["reward"] == pytest.approx([-0.1, 0.9])
    assert made["return"][0] == pytest.approx(0.8)


def test_given_passes_imported_rewards_on() -> None:
    assert channel("given", [{"reward_given": 0.5}, {"reward_given": None}]) == ([0.5, None], ["known", "missing"])


def test_an_unknown_channel_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UsageError, match=r"Unknown reward channel 'distnce'.*Did you mean 'distance'"):
        chosen_channels(ReturnsConfig(reward=("distnce",)))
