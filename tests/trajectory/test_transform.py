"""A stage copies what it read, adds its columns, and continues or refuses what is there already."""

import pyarrow as pa
import pytest
from tests.trajectory_files import column, turns, write

from dialrl.config import StageConfig, operational, semantic
from dialrl.errors import OutputExistsError, UsageError
from dialrl.trajectory.lineage import StageRecord
from dialrl.trajectory.reader import TrajectoryFile
from dialrl.trajectory.transform import finished_before, transform


class Settings(StageConfig):
    gamma: float = semantic(0.85, help="")
    steps: tuple[int, ...] = semantic((1, 2), help="")
    workers: int = operational(1, help="")


@pytest.fixture
def source(tmp_path):
    rows = turns(2, 2, reply="x", judge_status="ok", reward=1.0, reward_outcome=2.0, advantage=3.0, advantage_turn=4.0)
    return write(tmp_path / "in.parquet", rows, "rollout", "judge", "returns", "advantage")


def add_returns(source, output, config=None, **options):
    config = config or Settings()
    opened = TrajectoryFile.open(source)

    def compute(table):
        assert table.column_names == ["group_id", "sample", "turn", "judge_status"]
        return {"reward": pa.array([0.0] * table.num_rows), "return": pa.array([config.gamma] * table.num_rows)}

    transform(
        opened,
        output,
        stage="returns",
        adds=["reward", "return"],
        reads=["judge_status"],
        compute=compute,
        record=lambda: StageRecord("returns", config.semantic_values(), opened.input_files),
        **options,
    )
    return output


def test_a_stage_copies_earlier_columns_and_replaces_its_own(tmp_path, source):
    out = add_returns(source, tmp_path / "out.parquet")
    assert TrajectoryFile.open(out).names == ["group_id", "sample", "turn", "reply", "judge_status", "reward", "return"]
    assert column(out, "reward") == [0.0] * 4
    assert column(out, "reply") == ["x"] * 4


def test_stale_later_columns_go_with_their_records(tmp_path, source):
    out = TrajectoryFile.open(add_returns(source, tmp_path / "out.parquet"))
    assert not {"advantage", "advantage_turn", "reward_outcome"} & set(out.names)
    assert [record.stage for record in out.lineage.records] == ["rollout", "judge", "returns"]
    assert out.lineage.record("returns").options["gamma"] == 0.85


def test_a_stage_may_write_over_its_own_input(tmp_path, source):
    add_returns(source, source, overwrite=True)
    assert column(source, "return") == [0.85] * 4


def test_an_existing_output_is_refused_before_anything_is_read(tmp_path, source):
    with pytest.raises(OutputExistsError, match="exists"):
        add_returns(source, source)


def test_the_same_inputs_give_the_same_bytes(tmp_path, source):
    first = add_returns(source, tmp_path / "1.parquet")
    second = add_returns(source, tmp_path / "2.parquet", batch_rows=1)
    assert first.read_bytes() == second.read_bytes()


# resuming -----------------------------------------------------------------------------------------------------------


def finished(output, config, source, **options):
    return finished_before(output, stage="returns", config=config, source=TrajectoryFile.open(source), **options)


def test_there_is_nothing_to_resume_without_an_output(tmp_path, source):
    assert not finished(tmp_path / "out.parquet", Settings(), source)


def test_a_complete_output_of_the_same_work_is_finished(tmp_path, source):
    out = add_returns(source, tmp_path / "out.parquet")
    assert finished(out, Settings(), source)
    assert finished(out, Settings(workers=8), source)


def test_other_settings_are_refused_listing_the_keys_that_differ(tmp_path, source):
    out = add_returns(source, tmp_path / "out.parquet")
    with pytest.raises(UsageError, match=r"gamma: 0\.85 -> 0\.9; steps: \[1, 2\] -> \[1\]"):
        finished(out, Settings(gamma=0.9, steps=(1,)), source)
    assert not finished(out, Settings(gamma=0.9), source, overwrite=True)


def test_another_input_is_refused(tmp_path, source):
    out = add_returns(source, tmp_path / "out.parquet")
    other = write(tmp_path / "other.parquet", turns(2, judge_status="ok"))
    with pytest.raises(UsageError, match=r"input: \['in\.parquet'\] -> '.*other\.parquet' \(other content\)"):
        finished(out, Settings(), other)


def test_an_input_that_only_has_another_name_is_the_same(tmp_path, source):
    out = add_returns(source, tmp_path / "out.parquet")
    assert finished(out, Settings(), source.rename(tmp_path / "renamed.parquet"))


def test_a_file_that_another_stage_wrote_is_not_resumed(tmp_path, source):
    other = write(tmp_path / "out.parquet", turns(1))
    with pytest.raises(UsageError, match="was not written by 'returns'"):
        finished(other, Settings(), source)
    assert not finished(other, Settings(), source, overwrite=True)
