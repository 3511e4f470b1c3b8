"""Scope state: which turns are compared because they were taken in the same state."""

from pathlib import Path
from typing import Any

import pytest

from credit_files import advantage_of, returns_of, rows_of, write
from dialrl.advantage.anchors import state_pools
from dialrl.errors import InputError
from dialrl.trajectory.layout import Layout
from dialrl.trajectory.rows import rows_to_table


def said(*dialogues: str, group: str = "g") -> list[dict[str, Any]]:
    """One row a turn: 'a>x b>y' is the line a, the reply x, the line b, the reply y; '?' is not known."""
    return [
        {
            "group_id": group,
            "sample": sample,
            "turn": turn,
            "messages": None if line == "?" else [{"role": "user", "content": line}],
            "reply": reply,
        }
        for sample, dialogue in enumerate(dialogues)
        for turn, (line, _, reply) in enumerate(part.partition(">") for part in dialogue.split())
    ]


def pools(rows: list[dict[str, Any]], anchor: str) -> list[list[int]]:
    """The rows of each pool, in order of their first row."""
    table = rows_to_table(rows)
    numbers = state_pools(table, Layout.of(table), anchor).pool_N.tolist()
    return [[row for row, own in enumerate(numbers) if own == number] for number in dict.fromkeys(numbers)]


def test_an_observation_is_what_the_policy_last_read_whatever_went_before() -> None:
    assert pools(said("a>x b>y a>z", "a>y c>x"), "observation") == [[0, 2, 3], [1], [4]]


def test_a_context_is_everything_said_so_far() -> None:
    assert pools(said("a>x b>y a>z", "a>x b>z a>z", "a>y b>y"), "context") == [[0, 3, 6], [1, 4], [2], [5], [7]]


def test_words_do_not_run_together_in_a_context() -> None:
    assert pools(said("a>xb c>y", "a>x bc>y"), "context") == [[0, 2], [1], [3]]


def test_groups_do_not_share_states() -> None:
    assert pools([*said("a>x"), *said("a>x", group="h")], "observation") == [[0], [1]]


def test_a_position_is_that_before_the_turn() -> None:
    rows = said("a>x b>x c>x", "d>x e>x")
    for row, position in zip(rows, [(-3.0, 0.0), (-5.0, 0.0), (0.0, 0.0), (-5.0, 0.0), (-5.0, 0.0)], strict=True):
        row |= {"deficit": [-5.0, 0.0], "position": list(position)}
    assert pools(rows, "position") == [[0, 2, 3, 4], [1]]


def test_a_state_that_is_not_known_is_compared_with_nobody() -> None:
    assert pools(said("?>x a>x", "?>x a>x"), "observation") == [[0], [1, 3], [2]]
    assert pools(said("?>x a>x", "b>x a>x"), "context") == [[0], [1], [2], [3]]


def test_any_column_can_say_what_the_state_is(tmp_path: Path) -> None:
    groups = {"g": [(1.0, 3.0), (2.0, 5.0)]}
    rows = [{**row, "scenario_id": name} for row, name in zip(rows_of(groups), "uvvu", strict=True)]
    returned, _ = returns_of(write(tmp_path / "turns.parquet", rows), gamma=0.0)
    made, summary = advantage_of(returned, preset="gigpo", gamma=0.0, anchor="scenario_id", scale=("none",))
    assert [row["advantage_state"] for row in made] == [-2.0, 0.5, -0.5, 2.0]
    assert "centre state by scenario_id" in summary.figures["terms"]["state"]


def test_an_anchor_the_file_lacks_is_refused_with_the_choices(tmp_path: Path) -> None:
    returned, _ = returns_of(write(tmp_path / "turns.parquet", rows_of({"g": [(1.0,), (2.0,)]})))
    with pytest.raises(InputError, match=r"no column 'deficit'.*--anchor observation, context, position"):
        advantage_of(returned, preset="gigpo", gamma=0.85, anchor="position")


def test_the_share_of_states_that_came_back_is_counted(tmp_path: Path) -> None:
    rows = [{**row, "reward_given": 1.0 + number} for number, row in enumerate(said("a>x b>y", "a>x b>y", "a>z c>z"))]
    returned, _ = returns_of(write(tmp_path / "turns.parquet", rows))
    _, summary = advantage_of(returned, preset="gigpo", gamma=0.85, anchor="context")
    counted = summary.figures["pools"]["state: state"]
    assert (counted["pools"], counted["degenerate"]) == (3, 1)  # the two b after the same words, and c alone
