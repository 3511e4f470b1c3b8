"""A slim file with its parent reads as the whole file would; without it, or with a changed one, it is refused."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.trajectory_files import keys, read, turns, write

from dialrl.errors import InputError, MissingInputError, UsageError
from dialrl.trajectory.inspection import materialize
from dialrl.trajectory.lineage import StageRecord
from dialrl.trajectory.reader import TrajectoryFile
from dialrl.trajectory.transform import transform

ROWS = [*turns(2, 1, group="a", reply="Yes."), *turns(3, group="b", reply=None)]


def add(source, output, stage, columns, **options):
    """``source`` with constant columns added."""

    def compute(table):
        return {name: pa.array([value] * table.num_rows) for name, value in columns.items()}

    transform(
        TrajectoryFile.open(source),
        output,
        stage=stage,
        adds=list(columns),
        reads=[],
        compute=compute,
        record=lambda: StageRecord(stage),
        **options,
    )
    return output


@pytest.fixture
def chain(tmp_path):
    """rollout.parquet and, slim, judge.parquet, returns.parquet and advantage.parquet."""
    rollout = write(tmp_path / "rollout.parquet", ROWS)
    judge = add(rollout, tmp_path / "judge.parquet", "judge", {"judge_status": "ok", "belief_after": -1.0}, slim=True)
    returns = add(judge, tmp_path / "returns.parquet", "returns", {"reward": 1.0, "return": 2.0}, slim=True)
    return add(returns, tmp_path / "advantage.parquet", "advantage", {"advantage": 0.5}, slim=True)


def test_a_slim_file_holds_the_keys_and_its_own_columns(chain):
    assert pq.read_schema(chain).names == ["group_id", "sample", "turn", "advantage"]


def test_the_chain_joined_equals_the_whole_files(tmp_path, chain):
    whole = write(tmp_path / "w0.parquet", ROWS)
    whole = add(whole, tmp_path / "w1.parquet", "judge", {"judge_status": "ok", "belief_after": -1.0})
    whole = add(whole, tmp_path / "w2.parquet", "returns", {"reward": 1.0, "return": 2.0})
    whole = add(whole, tmp_path / "w3.parquet", "advantage", {"advantage": 0.5})
    joined, stored = TrajectoryFile.open(chain), TrajectoryFile.open(whole)
    assert joined.names == stored.names
    assert joined.schema == stored.schema
    assert joined.read() == stored.read()
    assert [r.stage for r in joined.lineage.records] == ["rollout", "judge", "returns", "advantage"]
    assert joined.stage == "advantage"


@pytest.mark.parametrize("batch_rows", [1, 2, 3, 4, 100])
def test_joining_gives_whole_groups_whatever_the_batch(chain, batch_rows):
    source = TrajectoryFile.open(chain)
    tables = list(source.groups(["group_id", "sample", "turn", "reply", "reward"], batch_rows))
    assert keys(tables) == [(r["group_id"], r["sample"], r["turn"]) for r in ROWS]
    assert [r["reply"] for table in tables for r in table.to_pylist()] == ["Yes."] * 3 + [None] * 3


def test_columns_of_one_link_alone_can_be_read(chain):
    source = TrajectoryFile.open(chain)
    assert source.read(["reply"]).column_names == ["reply"]
    assert source.read(["advantage"])["advantage"].to_pylist() == [0.5] * 6


def test_materializing_gives_one_whole_file_that_needs_no_other(tmp_path, chain):
    output = tmp_path / "elsewhere" / "whole.parquet"
    materialize(TrajectoryFile.open(chain), output)
    expected, records = read(chain), TrajectoryFile.open(chain).lineage.records
    for path in tmp_path.glob("*.parquet"):
        path.unlink()
    assert read(output) == expected
    assert TrajectoryFile.open(output).lineage.records == records
    assert TrajectoryFile.open(output).shards[0].parent is None


def test_a_folder_with_slim_files_can_move_as_one(tmp_path, chain):
    (tmp_path / "moved").mkdir()
    for path in tmp_path.glob("*.parquet"):
        path.rename(tmp_path / "moved" / path.name)
    assert len(read(tmp_path / "moved" / "advantage.parquet")) == 6


def test_a_parent_in_another_folder_is_found_by_its_relative_path(tmp_path):
    (tmp_path / "a").mkdir()
    rollout = write(tmp_path / "a" / "rollout.parquet", ROWS)
    slim = add(rollout, tmp_path / "b" / "judge.parquet", "judge", {"judge_status": "ok"}, slim=True)
    assert TrajectoryFile.open(slim).shards[0].lineage.parent.path == "../a/rollout.parquet"
    assert len(read(slim)) == 6


def test_a_missing_parent_is_named_with_what_to_do(tmp_path, chain):
    (tmp_path / "judge.parquet").unlink()
    with pytest.raises(MissingInputError, match=r"returns\.parquet' is a slim file that completes 'judge\.parquet'"):
        TrajectoryFile.open(chain)


def test_a_parent_that_was_written_again_is_refused(tmp_path, chain):
    write(tmp_path / "rollout.parquet", [{**r, "reply": "No."} for r in ROWS])
    with pytest.raises(InputError, match=r"judge\.parquet' completes '.*rollout\.parquet' with digest sha256:"):
        TrajectoryFile.open(chain)


def test_a_slim_file_of_several_shards_is_refused(tmp_path):
    shards = [write(tmp_path / f"{g}.parquet", turns(1, group=g)) for g in "ab"]
    with pytest.raises(UsageError, match="A slim output completes one file"):
        add(shards, tmp_path / "out.parquet", "judge", {"judge_status": "ok"}, slim=True)
    assert not (tmp_path / "out.parquet").exists()


def test_a_slim_file_cannot_replace_the_input_it_completes(tmp_path):
    rollout = write(tmp_path / "rollout.parquet", ROWS)
    with pytest.raises(UsageError, match="cannot replace"):
        add(rollout, tmp_path / "." / "rollout.parquet", "judge", {"judge_status": "ok"}, slim=True, overwrite=True)
    assert read(rollout)[0]["reply"] == "Yes."


def test_a_stage_run_again_hides_what_it_made_stale_in_its_parent(tmp_path, chain):
    again = add(chain, tmp_path / "again.parquet", "returns", {"reward": 9.0, "return": 9.0}, slim=True)
    found = TrajectoryFile.open(again)
    assert "advantage" not in found.names
    assert found.stage == "returns"
    assert found.read(["reward"])["reward"].to_pylist() == [9.0] * 6
    assert [record.stage for record in found.lineage.records] == ["rollout", "judge", "returns"]


def test_a_second_judge_adds_to_the_first(tmp_path, chain):
    again = add(chain, tmp_path / "again.parquet", "judge", {"belief_after": -2.0}, slim=True)
    found = TrajectoryFile.open(again)
    assert found.names == ["group_id", "sample", "turn", "reply", "judge_status", "belief_after"]
    assert found.read(["belief_after"])["belief_after"].to_pylist() == [-2.0] * 6
    assert [record.stage for record in found.lineage.records] == ["rollout", "judge", "judge"]
