"""``dialrl returns`` on files: columns, lineage, refusals, resume, shards, slim files."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from credit_files import GOLDEN, read, returns_of, rows_of, write
from dialrl.errors import InputError, MissingInputError, OutputExistsError, UsageError
from dialrl.returns.config import ReturnsConfig
from dialrl.returns.stage import compute_returns
from dialrl.trajectory.reader import TrajectoryFile


def golden(folder: Path) -> Path:
    return write(folder / "turns.parquet", rows_of(GOLDEN))


def test_the_output_holds_the_input_and_the_new_columns(tmp_path: Path) -> None:
    returned, _ = returns_of(golden(tmp_path))
    added = {"reward_given_status", "reward", "reward_filled", "return"}
    assert set(TrajectoryFile.open(returned).names) == {*read(tmp_path / "turns.parquet")[0], *added}
    assert [row["reward_given"] for row in read(returned)] == [row["reward"] for row in read(returned)]


def test_the_lineage_says_how_the_returns_were_made(tmp_path: Path) -> None:
    source = golden(tmp_path)
    returned, _ = returns_of(source, gamma=0.9)
    record = TrajectoryFile.open(returned).lineage.record("returns")
    assert record is not None
    assert record.options["gamma"] == 0.9
    assert "batch_rows" not in record.options
    assert record.inputs[0].digest == TrajectoryFile.open(source).digest()
    assert record.details["weights"] == {"given": 1.0}


def test_the_summary_counts_what_was_met(tmp_path: Path) -> None:
    rows = rows_of({"g": [(1.0, None, None), (0.2, 0.4, 0.6, 0.8)], "h": [(1.0,), (2.0,)]})
    for row in rows:
        row["truncated"] = row["group_id"] == "h"
    _, summary = returns_of(write(tmp_path / "turns.parquet", rows))
    counts = summary.counts
    assert (counts["groups"], counts["dialogues"], counts["turns"]) == (2, 4, 9)
    assert (counts["turns_missing"], counts["turns_filled"], counts["dialogues_dropped"]) == (2, 0, 1)
    assert summary.figures["truncated_share"] == 0.5
    assert summary.figures["channels"]["given"] == {
        "known": 7, "not_applicable": 0, "missing": 2, "mean": pytest.approx(6.0 / 7),
    }  # fmt: skip
    assert any("1 of 4 dialogues were dropped" in warning for warning in summary.warnings)


def test_an_absent_column_is_refused_with_the_stage_that_writes_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="lacks the columns deficit, position, which the stage 'judge' writes"):
        returns_of(golden(tmp_path), reward=("incremental-distance",))


def test_states_of_different_axes_are_refused_by_name(tmp_path: Path) -> None:
    rows = [
        {"group_id": "g", "sample": 0, "turn": 0, "deficit": [-1.0, -2.0], "position": [0.0, 0.0]},
        {"group_id": "g", "sample": 1, "turn": 0, "deficit": [-1.0, -2.0], "position": [0.0]},
    ]
    with pytest.raises(InputError, match="'position' has 1 axes in dialogue 'g/1', turn 0, but 2 before it"):
        returns_of(write(tmp_path / "turns.parquet", rows), reward=("incremental-distance",))


def test_wrong_axis_weights_are_refused(tmp_path: Path) -> None:
    rows = [{"group_id": "g", "sample": 0, "turn": 0, "deficit": [-1.0, -2.0], "position": [0.0, 0.0]}]
    with pytest.raises(InputError, match="expected 2 numbers"):
        returns_of(
            write(tmp_path / "turns.parquet", rows), reward=("incremental-distance",), axis_weights=(1.0, 1.0, 1.0)
        )


def test_an_infinite_reward_is_refused_by_name(tmp_path: Path) -> None:
    rows = rows_of({"g": [(1.0, float("inf"))]})
    with pytest.raises(InputError, match="'given' is inf in dialogue 'g/0', turn 1"):
        returns_of(write(tmp_path / "turns.parquet", rows))


def test_an_existing_output_is_refused_unless_overwritten_or_resumed(tmp_path: Path) -> None:
    source, output = golden(tmp_path), tmp_path / "out.parquet"
    config = ReturnsConfig(reward=("given",))
    compute_returns(source, output, config)
    with pytest.raises(OutputExistsError):
        compute_returns(source, output, config)
    before = output.stat().st_mtime_ns
    resumed = compute_returns(source, output, config, resume=True)
    assert output.stat().st_mtime_ns == before
    assert resumed.counts["turns"] == 11
    with pytest.raises(UsageError, match=r"gamma: 0\.85 -> 0\.5"):
        compute_returns(source, output, config.updated(gamma=0.5), resume=True)
    compute_returns(source, output, config.updated(gamma=0.5), overwrite=True)
    assert read(output)[0]["return"] == pytest.approx(1.0 + 0.5 * 0.5 + 0.25 * 0.8)


def test_a_missing_input_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match="nowhere"):
        compute_returns(tmp_path / "nowhere.parquet", tmp_path / "out.parquet")


def test_a_second_run_replaces_the_columns_of_the_first(tmp_path: Path) -> None:
    returned, _ = returns_of(golden(tmp_path))
    again, _ = returns_of(returned, reward=("given=2",), gamma=0.0)
    assert [row["return"] for row in read(again)] == [2 * row["reward_given"] for row in read(returned)]
    assert len(TrajectoryFile.open(again).lineage.records) == 2


def test_a_slim_output_reads_like_a_whole_one(tmp_path: Path) -> None:
    source = golden(tmp_path)
    config = ReturnsConfig(reward=("given",))
    compute_returns(source, tmp_path / "whole.parquet", config)
    compute_returns(source, tmp_path / "slim.parquet", config, slim=True)
    assert "reward_given" not in pq.read_schema(tmp_path / "slim.parquet").names
    assert read(tmp_path / "slim.parquet") == read(tmp_path / "whole.parquet")


@pytest.mark.parametrize("batch_rows", [1, 7, 1000])
def test_batches_row_groups_and_shards_change_nothing(tmp_path: Path, batch_rows: int) -> None:
    groups = {f"g{i}": [(0.1 * i, None, 1.0 / (1 + i)), (0.3, 0.2 * i, 0.5, i * 1.0)] for i in range(9)}
    groups["h"] = [(None, None)]
    rows = rows_of(groups)
    whole, _ = returns_of(write(tmp_path / "whole.parquet", rows), max_missing=1.0)
    shards = [
        write(tmp_path / f"part{part}.parquet", [r for r in rows if hash_of(r) % 3 == part], row_group_rows=2)
        for part in range(3)
    ]
    parts, _ = returns_of(shards, max_missing=1.0, batch_rows=batch_rows)
    left, right = read(whole), read(parts)
    assert [(r["group_id"], r["sample"], r["turn"]) for r in left] == [
        (r["group_id"], r["sample"], r["turn"]) for r in right
    ]
    for name in ("reward_filled", "return"):
        both = [[np.nan if row[name] is None else row[name] for row in rows] for rows in (left, right)]
        np.testing.assert_allclose(both[0], both[1], rtol=0, atol=1e-12)


def hash_of(row: dict[str, object]) -> int:
    """A shard number that keeps a group together."""
    return sum(map(ord, str(row["group_id"])))


@pytest.mark.parametrize(
    ("reward", "fault"),
    [
        (("given", "given=2"), "stands twice"),
        (("given=much",), "expected a number"),
        (("given=inf",), "finite"),
        (("=1",), "names no channel"),
        ((), "at least 1"),
    ],
)
def test_unreadable_rewards_are_refused(reward: tuple[str, ...], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        ReturnsConfig(reward=reward)
