"""What a missing reward does to rewards, fills, returns and counts (docs/credit.md 1, field cases 5 and 10)."""

from pathlib import Path
from typing import Any

import pytest

from credit_files import Groups, by_dialogue, read, returns_of, rows_of, rows_to_columns, write
from dialrl.returns.config import ReturnsConfig
from dialrl.returns.work import add_returns
from dialrl.trajectory.rows import rows_to_table


def columns(groups: Groups, **options: Any) -> dict[str, list[Any]]:
    """Rewards given, through ``returns`` in memory, as columns."""
    config = ReturnsConfig(**{"reward": ("given",), **options})
    return rows_to_columns(add_returns(rows_to_table(rows_of(groups)), config))


def test_the_golden_row_is_filled_and_discounted() -> None:
    made = columns({"g": [(1.0, None, 0.8), (0.3, 0.6, 0.9)]}, max_missing=0.5)
    assert made["reward"] == [1.0, None, 0.8, 0.3, 0.6, 0.9]
    assert made["reward_filled"] == [1.0, 0.6, 0.8, 0.3, 0.6, 0.9]
    want = [2.0880, None, 0.8000, 1.46025, 1.3650, 0.9000]
    assert [value is None for value in made["return"]] == [value is None for value in want]
    assert [v for v in made["return"] if v is not None] == pytest.approx([v for v in want if v is not None])


def test_a_turn_that_nobody_else_knows_is_filled_by_the_groups_mean() -> None:
    made = columns({"g": [(1.0, 3.0, None), (2.0, 2.0)]}, max_missing=0.5)
    assert made["reward_filled"] == [1.0, 3.0, 2.0, 2.0, 2.0]


def test_a_group_that_knows_nothing_is_filled_by_the_files_mean(tmp_path: Path) -> None:
    groups: Groups = {"g0": [(None, None)], "g1": [(1.0, 2.0), (6.0, None)]}
    source = write(tmp_path / "turns.parquet", rows_of(groups))
    returned, summary = returns_of(source, max_missing=1.0, batch_rows=1)
    assert by_dialogue(read(returned), "reward_filled") == {"g0": [[3.0, 3.0]], "g1": [[1.0, 2.0], [6.0, 2.0]]}
    counts = summary.counts
    assert (counts["turns_filled"], counts["filled_by_turn_mean"], counts["filled_by_file_mean"]) == (3, 1, 2)


def test_a_file_that_knows_nothing_drops_every_dialogue() -> None:
    made = columns({"g": [(None, None)]}, max_missing=1.0)
    assert made["reward_filled"] == made["return"] == made["reward"] == [None, None]


def test_a_dialogue_with_too_much_missing_keeps_its_rewards_and_gets_no_return() -> None:
    made = columns({"g": [(1.0, None, None), (0.2, 0.4, 0.6)]})
    assert made["reward"] == [1.0, None, None, 0.2, 0.4, 0.6]
    assert made["reward_filled"][:3] == made["return"][:3] == [None] * 3


def test_a_dropped_dialogue_is_in_no_mean() -> None:
    made = columns({"g": [(9.0, None, None), (1.0, 2.0, 3.0, None), (5.0, 6.0, 7.0, 4.0)]})
    assert made["reward_filled"][6] == 4.0  # the fourth turn: only the third dialogue knows it
    made = columns({"g": [(9.0, None, None), (None, 2.0, 3.0, 1.0), (5.0, 6.0, 7.0, 4.0)]})
    assert made["reward_filled"][3] == 5.0  # the first turn: not (9 + 5) / 2


@pytest.mark.parametrize(("missing", "dropped"), [(3, False), (4, True)])
def test_the_share_of_missing_turns_may_equal_the_limit(missing: int, dropped: bool) -> None:
    rewards = [None] * missing + [1.0] * (10 - missing)
    made = columns({"g": [tuple(rewards), (2.0,) * 10]})
    assert (made["reward_filled"][0] is None) == dropped


def test_drop_dialogue_drops_at_the_first_missing_turn() -> None:
    made = columns({"g": [(1.0,) * 9 + (None,), (2.0,) * 10]}, missing="drop-dialogue")
    assert made["return"][:10] == [None] * 10
    assert None not in made["return"][10:]


def test_zero_takes_a_missing_reward_as_nothing() -> None:
    made = columns({"g": [(1.0, None, 0.8), (0.3, 0.6, 0.9)]}, missing="zero", gamma=0.5)
    assert made["reward_filled"][:3] == [1.0, 0.0, 0.8]
    assert made["return"][:3] == [1.0 + 0.25 * 0.8, None, 0.8]


def test_turns_after_the_stop_count_for_nothing_and_are_not_missing() -> None:
    rows = [{**row, "stop_turn": 1} for row in rows_of({"g": [(1.0, 2.0, None, 8.0)]})]
    stopped = rows_to_columns(add_returns(rows_to_table(rows), ReturnsConfig(reward=("given",), gamma=0.5)))
    assert stopped["reward"] == stopped["reward_filled"] == [1.0, 2.0, None, None]
    assert stopped["return"] == [2.0, 2.0, None, None]
    config = ReturnsConfig(reward=("given",), gamma=0.5, until="end")
    to_the_end = rows_to_columns(add_returns(rows_to_table(rows), config))
    assert to_the_end["reward"] == [1.0, 2.0, None, 8.0]
    assert to_the_end["return"][3] == 8.0


def test_a_gap_in_the_turn_indices_is_time_that_passed() -> None:
    rows = rows_of({"g": [(1.0, 1.0, 1.0)]})
    for row, turn in zip(rows, (0, 2, 5), strict=True):
        row["turn"] = turn
    made = rows_to_columns(add_returns(rows_to_table(rows), ReturnsConfig(reward=("given",), gamma=0.5)))
    assert made["return"] == [1 + 0.25 + 0.25 * 0.125, 1.125, 1.0]


def test_a_reward_is_the_weighted_sum_of_its_channels() -> None:
    rows = rows_of({"g": [(1.0, 2.0)]})
    rows[1]["outcome"] = 10.0
    config = ReturnsConfig(reward=("given=0.5", "outcome=-1"), gamma=1.0)
    made = rows_to_columns(add_returns(rows_to_table(rows), config))
    assert made["reward"] == [0.5, -9.0]
    assert made["reward_outcome"] == [None, 10.0]


def test_a_reward_is_null_when_one_applicable_channel_is_missing() -> None:
    rows = rows_of({"g": [(1.0, 2.0, 3.0, 4.0), (1.0, 2.0, 3.0, 4.0)]})
    rows[7]["outcome"] = 1.0
    made = rows_to_columns(add_returns(rows_to_table(rows), ReturnsConfig(reward=("given", "outcome"))))
    assert made["reward"] == [1.0, 2.0, 3.0, None, 1.0, 2.0, 3.0, 5.0]
    assert made["reward_outcome_status"][3] == "missing"
