"""Reading: whole groups in order whatever the batch, shards merged, and every wrong input refused in one sentence."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.trajectory_files import keys, row, turns, write, write_raw

from dialrl.errors import InputError, MissingInputError
from dialrl.trajectory.reader import TrajectoryFile
from dialrl.trajectory.schema import SCHEMA_VERSION, schema_for

# Groups of 3, 1, 6 and 2 rows.
ROWS = [*turns(2, 1, group="a"), *turns(1, group="b"), *turns(1, 3, 2, group="c"), *turns(2, group="d")]
SORTED = [(r["group_id"], r["sample"], r["turn"]) for r in ROWS]
KEY_TABLE = pa.table({"group_id": ["g"], "sample": [0], "turn": [0]}, schema=schema_for(["group_id", "sample", "turn"]))
GOOD_METADATA = {"schema_version": SCHEMA_VERSION, "lineage": []}


@pytest.mark.parametrize("batch_rows", [1, 2, 3, 4, 5, 6, 7, 11, 12, 100])
def test_every_table_holds_whole_groups_in_order(tmp_path, batch_rows):
    source = TrajectoryFile.open(write(tmp_path / "t.parquet", ROWS, row_group_rows=4))
    tables = list(source.groups(["group_id", "sample", "turn"], batch_rows))
    assert keys(tables) == SORTED
    groups = [table["group_id"].unique().to_pylist() for table in tables]
    assert [group for found in groups for group in found] == ["a", "b", "c", "d"]
    assert max(table.num_rows for table in tables) < batch_rows + 6  # a batch and the largest group


@given(
    st.dictionaries(
        st.text("abz#/é", min_size=1, max_size=3), st.lists(st.integers(1, 3), min_size=1, max_size=3), min_size=1,
        max_size=6,
    ),
    st.integers(1, 12), st.integers(1, 6),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_any_file_is_read_whole_in_tables_of_whole_groups(tmp_path_factory, groups, batch_rows, row_group_rows):
    rows = [turn for group in sorted(groups) for turn in turns(*groups[group], group=group)]
    path = write(tmp_path_factory.mktemp("reader") / "t.parquet", rows, row_group_rows=row_group_rows)
    tables = list(TrajectoryFile.open(path).groups(["group_id", "sample", "turn"], batch_rows))
    assert keys(tables) == [(r["group_id"], r["sample"], r["turn"]) for r in rows]
    seen = [group for table in tables for group in table["group_id"].unique().to_pylist()]
    assert seen == sorted(groups)


def test_only_the_columns_asked_for_are_given_in_their_order(tmp_path):
    source = TrajectoryFile.open(write(tmp_path / "t.parquet", [row("g", reply="Yes.", status="ok")]))
    assert next(source.groups(["status", "reply"])).column_names == ["status", "reply"]
    assert source.read(["reply"]).to_pylist() == [{"reply": "Yes."}]
    assert source.names == ["group_id", "sample", "turn", "reply", "status"]


@pytest.mark.parametrize(
    ("rows", "second"),
    [
        ([row("b"), row("a")], "'a/0', turn 0"),
        ([row("a", 1), row("a", 0)], "'a/0', turn 0"),
        ([row("a", 0, 1), row("a", 0, 0)], "'a/0', turn 0"),
        ([row("a", 0, 0), row("a", 0, 0)], "'a/0', turn 0"),
        ([row("a"), row("b"), row("a", 1)], "'a/1', turn 0"),
    ],
    ids=["groups", "samples", "turns", "a turn twice", "a group twice"],
)
@pytest.mark.parametrize("batch_rows", [1, 2, 100])
def test_rows_out_of_order_are_refused_naming_the_turn_and_the_remedy(tmp_path, rows, second, batch_rows):
    source = TrajectoryFile.open(write(tmp_path / "t.parquet", rows))
    with pytest.raises(InputError) as refused:
        list(source.groups(batch_rows=batch_rows))
    assert "t.parquet' is not sorted" in str(refused.value)
    if batch_rows == 100:
        assert f"dialogue {second} comes after dialogue" in str(refused.value)
        assert "dialrl import turns" in str(refused.value)


def test_gaps_in_turns_and_samples_are_in_order(tmp_path):
    rows = [row("a", 0, 2), row("a", 0, 5), row("a", 3, 0)]
    assert keys(TrajectoryFile.open(write(tmp_path / "t.parquet", rows))) == [("a", 0, 2), ("a", 0, 5), ("a", 3, 0)]


# shards -------------------------------------------------------------------------------------------------------------


def shards(folder, *groups_of_each):
    """One file a string of group names, all with two dialogues of one and two turns."""
    return [
        write(folder / f"{index}.parquet", [turn for name in names for turn in turns(1, 2, group=name)])
        for index, names in enumerate(groups_of_each)
    ]


@pytest.mark.parametrize("batch_rows", [1, 3, 4, 7, 100])
def test_interleaved_shards_are_merged_group_by_group(tmp_path, batch_rows):
    shards(tmp_path, "acg", "bdef", "h")
    tables = list(TrajectoryFile.open(tmp_path).groups(batch_rows=batch_rows))
    assert [g for table in tables for g in table["group_id"].unique().to_pylist()] == list("abcdefgh")
    assert len(keys(tables)) == 8 * 3


def test_a_folder_stands_for_its_visible_parquet_files(tmp_path):
    shards(tmp_path, "a", "b")
    (tmp_path / ".c.parquet").write_bytes(b"hidden")
    (tmp_path / "0.parquet.run.json").write_text("{}")
    source = TrajectoryFile.open(tmp_path)
    assert [shard.path.name for shard in source.shards] == ["0.parquet", "1.parquet"]
    assert source.num_rows == 6
    assert "and 1 more" in source.where


def test_several_files_and_folders_make_one_trajectory(tmp_path):
    (tmp_path / "more").mkdir()
    shards(tmp_path / "more", "a")
    first = write(tmp_path / "b.parquet", turns(1, group="b"))
    assert keys(TrajectoryFile.open([first, tmp_path / "more"])) == [
        ("a", 0, 0), ("a", 1, 0), ("a", 1, 1), ("b", 0, 0),
    ]  # fmt: skip


@pytest.mark.parametrize("groups_of_each", [("ab", "bc"), ("abc", "b"), ("b", "abc")])
def test_a_group_in_two_shards_is_refused_naming_both(tmp_path, groups_of_each):
    source = TrajectoryFile.open(shards(tmp_path, *groups_of_each))
    with pytest.raises(InputError, match=r"Group 'b' stands in '.*\.parquet' and '.*\.parquet'.*never crosses shards"):
        list(source.groups())


def test_the_same_file_twice_is_refused(tmp_path):
    (path,) = shards(tmp_path, "a")
    with pytest.raises(InputError, match="Group 'a' stands in"):
        list(TrajectoryFile.open([path, path]).groups())


def test_shards_with_other_columns_are_refused_naming_them(tmp_path):
    write(tmp_path / "0.parquet", turns(1, group="a"))
    write(tmp_path / "1.parquet", turns(1, group="b", reply="x"))
    with pytest.raises(InputError, match=r"1\.parquet' and '.*0\.parquet' have different columns: reply"):
        TrajectoryFile.open(tmp_path)


def test_the_digest_names_the_content_of_all_shards(tmp_path):
    first, second = shards(tmp_path, "a", "b")
    whole = TrajectoryFile.open([first, second])
    assert [file.name for file in whole.input_files] == ["0.parquet", "1.parquet"]
    assert whole.digest() != TrajectoryFile.open(first).digest() == whole.input_files[0].digest
    write(second, turns(1, 2, group="c"))
    assert TrajectoryFile.open([first, second]).digest() != whole.digest()


# wrong inputs -------------------------------------------------------------------------------------------------------


def truncated(path):
    write(path, turns(3, 3))
    path.write_bytes(path.read_bytes()[:-40])
    return path


def wrong_type(path):
    table = KEY_TABLE.append_column("reward", pa.array(["high"]))
    return write_raw(path, table, GOOD_METADATA)


WRONG_INPUTS = {
    "missing": (lambda path: path, "does not exist. Give a trajectory file or a folder of shards"),
    "empty folder": (lambda path: path.mkdir(), r"holds no \*\.parquet file"),
    "0 bytes": (lambda path: path.write_bytes(b""), r"is empty \(0 bytes\)"),
    "not Parquet": (lambda path: path.write_text("{}" * 50), "is not a Parquet file, or a truncated one"),
    "truncated before the footer": (truncated, "is not a Parquet file, or a truncated one"),
    "a plain Parquet file": (lambda path: write_raw(path, KEY_TABLE, None), "no trajectory file.*dialrl import turns"),
    "another schema version": (
        lambda path: write_raw(path, KEY_TABLE, {"schema_version": 7, "lineage": []}),
        "schema version 7; this dialrl reads version 1",
    ),
    "a lineage that is no JSON object": (lambda path: write_raw(path, KEY_TABLE, [1]), "expected an object"),
    "a lineage with other fields": (
        lambda path: write_raw(path, KEY_TABLE, {"schema_version": SCHEMA_VERSION, "lineage": [{"level": 1}]}),
        "its lineage cannot be read",
    ),
    "a wrong column type": (wrong_type, "column 'reward' has type string; expected double"),
    "an unknown column": (
        lambda path: write_raw(path, KEY_TABLE.append_column("rewards", pa.array([1.0])), GOOD_METADATA),
        "'rewards' is no column.*Did you mean 'reward'?",
    ),
    "no key columns": (
        lambda path: write_raw(path, KEY_TABLE.drop_columns(["sample", "turn"]), GOOD_METADATA),
        "lacks the key columns sample, turn",
    ),
    "no rows": (lambda path: write_raw(path, KEY_TABLE.slice(0, 0), GOOD_METADATA), "holds no turns"),
}


@pytest.mark.parametrize("name", WRONG_INPUTS)
def test_each_wrong_input_is_one_clear_error_of_the_user(tmp_path, name):
    make, sentence = WRONG_INPUTS[name]
    path = tmp_path / "x.parquet"
    make(path)
    with pytest.raises(InputError, match=sentence) as refused:
        TrajectoryFile.open(path)
    assert refused.value.exit_code == 2
    assert "x.parquet" in str(refused.value)
    assert "\n" not in str(refused.value)
    assert isinstance(refused.value, FileNotFoundError) == (name == "missing")


def test_an_error_about_a_missing_file_reads_as_a_sentence():
    with pytest.raises(MissingInputError) as refused:
        TrajectoryFile.open("nowhere.parquet")
    assert str(refused.value) == "'nowhere.parquet' does not exist. Give a trajectory file or a folder of shards."


def test_no_input_at_all_is_refused():
    with pytest.raises(InputError, match="No input was given"):
        TrajectoryFile.open([])


def test_damage_inside_the_file_is_told_when_it_is_read(tmp_path):
    path = write(tmp_path / "t.parquet", turns(300, reply="word " * 20))
    content = bytearray(path.read_bytes())
    content[4:400] = bytes(396)
    path.write_bytes(bytes(content))
    with pytest.raises(InputError, match=r"t\.parquet' is damaged"):
        TrajectoryFile.open(path).read()


def test_a_file_of_an_earlier_stage_is_refused_with_the_command_that_is_missing(tmp_path):
    path = write(tmp_path / "t.parquet", turns(1, judge_status="ok"))
    with pytest.raises(InputError, match=r"has been through 'judge'.*'advantage'.*Run first: dialrl returns"):
        TrajectoryFile.open(path, stage="advantage")
    assert TrajectoryFile.open(path, stage="judge").stage == "judge"


def test_columns_that_are_needed_and_absent_are_named_with_their_stage(tmp_path):
    path = write(tmp_path / "t.parquet", turns(1))
    with pytest.raises(InputError, match="lacks the columns deficit, position, which the stage 'judge' writes"):
        TrajectoryFile.open(path, needs=["turn", "deficit", "position"])
    with pytest.raises(InputError, match="lacks the column reward_given, which dialrl import writes"):
        TrajectoryFile.open(path, needs=["reward_given"])


def test_a_file_that_pyarrow_wrote_with_the_right_key_is_read(tmp_path):
    path = write_raw(tmp_path / "t.parquet", KEY_TABLE, GOOD_METADATA)
    assert pq.read_schema(path).metadata is not None
    assert keys(TrajectoryFile.open(path)) == [("g", 0, 0)]
