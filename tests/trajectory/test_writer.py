"""A trajectory file is visible only when complete, and no row group cuts a dialogue."""

import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.trajectory_files import keys, row, turns, write

from dialrl.errors import InputError, OutputExistsError, RunError
from dialrl.trajectory.atomic import atomic_path, write_text
from dialrl.trajectory.lineage import Lineage
from dialrl.trajectory.reader import TrajectoryFile
from dialrl.trajectory.rows import rows_to_table
from dialrl.trajectory.schema import schema_for
from dialrl.trajectory.writer import TrajectoryWriter, refuse_existing


def row_groups(path):
    """The keys of each row group."""
    file = pq.ParquetFile(path)
    return [keys([file.read_row_group(index)]) for index in range(file.num_row_groups)]


def test_a_row_group_ends_at_the_last_dialogue_that_fits(tmp_path):
    path = write(tmp_path / "t.parquet", [*turns(2, 3, 2, group="a"), *turns(4, group="b")], row_group_rows=5)
    assert [len(group) for group in row_groups(path)] == [5, 2, 4]


def test_a_dialogue_longer_than_a_row_group_gets_one_of_its_own(tmp_path):
    path = write(tmp_path / "t.parquet", turns(1, 7, 1), row_group_rows=3)
    assert [len(group) for group in row_groups(path)] == [1, 7, 1]


@given(st.lists(st.lists(st.integers(1, 6), min_size=1, max_size=4), min_size=1, max_size=5), st.integers(1, 8))
@settings(max_examples=40, deadline=None)
def test_no_row_group_cuts_a_dialogue_however_it_is_written(tmp_path_factory, writes, row_group_rows):
    path = tmp_path_factory.mktemp("writer") / "t.parquet"
    lengths = [length for piece in writes for length in piece]
    rows = turns(*lengths)
    table = rows_to_table(rows)
    with TrajectoryWriter(path, table.schema, row_group_rows=row_group_rows) as writer:
        start = 0
        for piece in writes:  # a rollout's block may cut a group, never a dialogue
            writer.write(table.slice(start, sum(piece)))
            start += sum(piece)
        writer.finish(Lineage())
    found = row_groups(path)
    dialogues = [{(group, sample) for group, sample, _ in one} for one in found]
    assert sum(map(len, dialogues)) == len(lengths)
    assert [key for one in found for key in one] == [(r["group_id"], r["sample"], r["turn"]) for r in rows]


def test_the_file_is_zstd_under_the_explicit_schema(tmp_path):
    file = pq.ParquetFile(write(tmp_path / "t.parquet", [row("g", reward_given=None)]))
    assert file.metadata.row_group(0).column(0).compression == "ZSTD"
    assert file.schema_arrow.remove_metadata() == schema_for(["group_id", "sample", "turn", "reward_given"])


def test_a_writer_that_fails_leaves_nothing(tmp_path):
    table = rows_to_table(turns(2))
    with (
        pytest.raises(ZeroDivisionError),
        TrajectoryWriter(tmp_path / "t.parquet", table.schema) as writer,
    ):
        writer.write(table)
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_a_writer_that_fails_leaves_the_earlier_file_as_it_was(tmp_path):
    path = write(tmp_path / "t.parquet", turns(2))
    before = path.read_bytes()
    with pytest.raises(KeyboardInterrupt), TrajectoryWriter(path, rows_to_table(turns(1)).schema):
        raise KeyboardInterrupt
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_killed_writer_leaves_only_a_hidden_file_that_no_reader_takes(tmp_path):
    killed = f"""
import os
from tests.trajectory_files import turns
from dialrl.trajectory.rows import rows_to_table
from dialrl.trajectory.writer import TrajectoryWriter
table = rows_to_table(turns(3))
writer = TrajectoryWriter(__import__("pathlib").Path({str(tmp_path)!r}) / "t.parquet", table.schema, row_group_rows=1)
writer.write(table)
os._exit(9)  # before the footer
"""
    assert subprocess.run([sys.executable, "-c", killed], cwd=Path(__file__).parents[2], check=False).returncode == 9
    assert [path.name for path in tmp_path.iterdir()] == [".t.parquet.tmp"]
    with pytest.raises(InputError, match=r"holds no \*\.parquet file"):
        TrajectoryFile.open(tmp_path)
    path = write(tmp_path / "t.parquet", turns(1))
    assert list(tmp_path.iterdir()) == [path]
    assert keys(TrajectoryFile.open(tmp_path)) == [("g", 0, 0)]


def test_a_file_without_a_lineage_is_not_published(tmp_path):
    with pytest.raises(RunError, match=r"without a lineage; call finish\(\)"):  # noqa: SIM117 - the block is the point
        with TrajectoryWriter(tmp_path / "t.parquet", rows_to_table(turns(1)).schema) as writer:
            writer.write(rows_to_table(turns(1)))
    assert list(tmp_path.iterdir()) == []


def test_a_file_without_rows_can_be_written_and_has_its_columns(tmp_path):
    path = write(tmp_path / "t.parquet", [row("g")])
    with TrajectoryWriter(path, schema_for(["group_id", "sample", "turn"])) as writer:
        writer.finish(Lineage())
    assert pq.read_table(path).num_rows == 0


def test_an_existing_output_is_refused_with_what_can_be_done(tmp_path):
    path = write(tmp_path / "t.parquet", turns(1))
    with pytest.raises(OutputExistsError, match=r"t\.parquet' exists.*--overwrite.*--resume"):
        refuse_existing(path, overwrite=False)
    refuse_existing(path, overwrite=True)
    refuse_existing(tmp_path / "other.parquet", overwrite=False)


def test_a_text_file_appears_whole_or_not_at_all(tmp_path):
    write_text(tmp_path / "deep" / "a.json", "{}")
    assert (tmp_path / "deep" / "a.json").read_text() == "{}"
    with pytest.raises(ZeroDivisionError), atomic_path(tmp_path / "b.json") as temporary:
        temporary.write_text("half")
        raise ZeroDivisionError
    assert [path.name for path in tmp_path.iterdir()] == ["deep"]
