"""What ``inspect`` counts, and how one dialogue is found."""

import pytest
from tests.trajectory_files import keys, row, turns, write

from dialrl.errors import InputError, OutputExistsError
from dialrl.trajectory.inspection import find_dialogue, materialize, overview
from dialrl.trajectory.reader import TrajectoryFile

ROWS = [
    row("a", 0, 0, status="ok", reward=1.0, reply_ids=[5, 6], flags=["repetition"], prompt_ids=[1, 2, 3]),
    row("a", 0, 1, status="ok", reward=3.0, reply_ids=[7], flags=None, prompt_ids=[]),
    row("a", 1, 0, status="error", reward=None, reply_ids=None, flags=["repetition", "undecodable_bytes"]),
    row("b", 0, 0, status="ok", reward=-1.0, reply_ids=[], flags=[], prompt_ids=[4]),
]


@pytest.fixture
def source(tmp_path):
    return TrajectoryFile.open(write(tmp_path / "t.parquet", ROWS))


def test_groups_dialogues_turns_and_tokens_are_counted(source):
    found = overview(source)
    assert found["counts"] == {"groups": 2, "dialogues": 3, "turns": 4, "prompt_tokens": 4, "reply_tokens": 3}
    assert found["turns_per_dialogue"] == {"min": 1, "median": 1, "max": 2}
    assert (found["stage"], found["slim"]) == ("rollout", False)
    assert found["columns"] == source.names
    assert [record["stage"] for record in found["lineage"]] == ["rollout"]


def test_values_of_status_columns_and_flags_are_counted(source):
    values = overview(source)["values"]
    assert values == {"status": {"ok": 3, "error": 1}, "flags": {"repetition": 2, "undecodable_bytes": 1}}


def test_moments_rest_on_the_known_numbers_only(source):
    # 1, 3, -1: mean 1, population variance (0 + 4 + 4) / 3.
    reward = overview(source)["numbers"]["reward"]
    assert reward == {"known": 3, "mean": 1.0, "std": pytest.approx((8 / 3) ** 0.5), "min": -1.0, "max": 3.0}


def test_the_spread_of_large_equal_numbers_is_zero(tmp_path):
    path = write(tmp_path / "t.parquet", turns(3, reward=1e9 + 0.1))
    assert overview(TrajectoryFile.open(path))["numbers"]["reward"]["std"] == 0.0


def test_a_column_that_is_all_null_has_no_moments(tmp_path):
    path = write(tmp_path / "t.parquet", turns(2, outcome=None))
    assert overview(TrajectoryFile.open(path))["numbers"] == {}


def test_a_dialogue_is_found_by_its_id(source):
    found = find_dialogue(source, "a/0")
    assert [(r["turn"], r["reward"]) for r in found] == [(0, 1.0), (1, 3.0)]


def test_a_group_name_may_hold_slashes(tmp_path):
    path = write(tmp_path / "t.parquet", [row("x/y", 0), row("x/y", 10)])
    assert find_dialogue(TrajectoryFile.open(path), "x/y/10")[0]["sample"] == 10


@pytest.mark.parametrize(
    ("asked", "examples"),
    [("a/7", "a/0, a/1"), ("c/0", "a/0, a/1, b/0"), ("a", "a/0"), ("a/x", "a/0"), ("", "a/0")],
)
def test_a_dialogue_that_is_not_there_is_answered_with_some_that_are(source, asked, examples):
    with pytest.raises(InputError, match=f"has no dialogue '{asked}'. It has, for example: {examples}"):
        find_dialogue(source, asked)


def test_shards_can_be_joined_into_one_file(tmp_path):
    write(tmp_path / "0.parquet", turns(1, group="b"))
    write(tmp_path / "1.parquet", turns(2, group="a"))
    materialize(TrajectoryFile.open(tmp_path), tmp_path / "whole" / "t.parquet")
    assert keys(TrajectoryFile.open(tmp_path / "whole")) == [("a", 0, 0), ("a", 0, 1), ("b", 0, 0)]


def test_materializing_refuses_an_existing_output(tmp_path, source):
    with pytest.raises(OutputExistsError):
        materialize(source, tmp_path / "t.parquet")
