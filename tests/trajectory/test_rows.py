"""Rows under the explicit schema: the traps of field case 32, each with its right answer."""

import pyarrow as pa
import pytest
from tests.trajectory_files import column, read, row, turns, write

from dialrl.errors import InputError
from dialrl.trajectory.reader import TrajectoryFile
from dialrl.trajectory.rows import rows_to_table, table_to_dialogues
from dialrl.trajectory.schema import field_for


def values(name, *given):
    """The column ``name`` of rows that hold ``given``, written to a table and read back."""
    return rows_to_table([row("g", 0, turn, **{name: value}) for turn, value in enumerate(given)])[name].to_pylist()


def test_a_column_that_is_all_null_in_one_shard_has_its_type_there(tmp_path):
    write(tmp_path / "0.parquet", [row("a", outcome=None, final_messages=None, prompt_ids=None)])
    message = [{"role": "user", "name": None, "content": "Hi."}]
    write(tmp_path / "1.parquet", [row("b", outcome=0.5, final_messages=message, prompt_ids=[3])])
    whole = TrajectoryFile.open(tmp_path).read()
    assert whole.schema == pa.schema([field_for(name) for name in whole.column_names])
    assert whole["outcome"].to_pylist() == [None, 0.5]
    assert whole["final_messages"].to_pylist() == [None, message]
    assert whole["prompt_ids"].to_pylist() == [None, [3]]


def test_a_column_that_some_rows_lack_is_null_there():
    table = rows_to_table([row("g", 0, 0, reply="x"), row("g", 0, 1)])
    assert table["reply"].to_pylist() == ["x", None]
    assert rows_to_table([row("g")], ["turn", "reply"]).to_pylist() == [{"turn": 0, "reply": None}]


def test_an_empty_list_and_null_stay_apart(tmp_path):
    path = write(tmp_path / "t.parquet", [row("g", 0, 0, reply_ids=[]), row("g", 0, 1, reply_ids=None)])
    assert column(path, "reply_ids") == [[], None]


def test_a_list_of_an_empty_list_is_no_list_of_ids():
    with pytest.raises(InputError, match=r"dialogue 'g/0', turn 0, column 'reply_ids' got \[\[\]\]; expected list"):
        values("reply_ids", [[]])


def test_an_empty_struct_has_null_fields_and_null_stays_null(tmp_path):
    path = write(tmp_path / "t.parquet", [row("g", 0, 0, director={}), row("g", 0, 1, director=None)])
    assert column(path, "director") == [{"tool": None, "argument": None, "guidance": None}, None]


def test_structs_with_different_keys_share_one_type():
    got = values("grades", [{"indicator": "a"}, {"level": 2}])
    assert got == [[
        {"indicator": "a", "level": None, "evidence": None, "reasoning": None},
        {"indicator": None, "level": 2, "evidence": None, "reasoning": None},
    ]]  # fmt: skip


def test_a_field_that_the_structs_of_a_column_do_not_have_is_refused():
    with pytest.raises(InputError, match=r"turn 1, column 'director' got .*'colour': 'red'.*expected struct<tool"):
        values("director", {"tool": "hint"}, {"tool": "hint", "colour": "red"})
    with pytest.raises(InputError, match=r"turn 0, column 'messages' got .*'text': 'Hi\.'"):
        values("messages", [{"role": "user", "text": "Hi."}])


@pytest.mark.parametrize("given", [(4, "4"), ("4", 4)])
def test_4_beside_text_4_is_refused_naming_the_row(given):
    wrong = given.index("4")
    with pytest.raises(
        InputError, match=rf"dialogue 'g/0', turn {wrong}, column 'policy_step' got '4'; expected int64"
    ):
        values("policy_step", *given)
    with pytest.raises(InputError, match=rf"dialogue 'g/0', turn {1 - wrong}, column 'reply' got 4; expected string"):
        values("reply", *given)


@pytest.mark.parametrize(
    ("name", "value"),
    [("stop_turn", 2**40), ("stop_turn", 1.5), ("terminated", 1), ("reward", "0.5"), ("reply_ids", "12"),
     ("reply_ids", [1, None, "x"]), ("reply_ids", [1.5]), ("sample", True), ("reward", True), ("reply", b"x"),
     ("position", [True]), ("grades", [{"level": 1.5}])],
)  # fmt: skip
def test_a_value_of_another_kind_is_never_converted(name, value):
    with pytest.raises(InputError, match=f"column '{name}' got {value!r}".replace("[", r"\[").replace("]", r"\]")):
        rows_to_table([{**row("g"), name: value}])


def test_a_whole_number_is_a_number():
    assert values("reward", 1, 0.5) == [1.0, 0.5]


def test_a_lone_surrogate_is_refused_naming_the_row():
    with pytest.raises(InputError, match="dialogue 'g/0', turn 1, column 'reply' holds a lone surrogate"):
        values("reply", "fine 🙂", "broken \ud83d")
    with pytest.raises(InputError, match="turn 0, column 'messages' holds a lone surrogate"):
        values("messages", [{"role": "user", "name": None, "content": "\udc80"}])


def test_text_is_kept_to_the_character(tmp_path):
    text = " \x00\x1b[31m[/bold]\r\n\u2028\ufffd🙂 "
    assert column(write(tmp_path / "t.parquet", [row("g", reply=text)]), "reply") == [text]


@pytest.mark.parametrize(
    ("name", "value"),
    [("reward", float("nan")), ("position", [0.0, float("nan")]), ("reply_logprobs", [-1.0, float("nan")])],
)
def test_nan_is_a_fault_of_the_writer(name, value):
    with pytest.raises(InputError, match=f"dialogue 'g/0', turn 1, column '{name}' holds NaN.*null"):
        values(name, None, value)


def test_null_is_no_nan(tmp_path):
    rows = [row("g", 0, 0, reward=None, position=[None, 1.0]), row("g", 0, 1, reward=0.0, position=None)]
    path = write(tmp_path / "t.parquet", rows)
    assert [(r["reward"], r["position"]) for r in read(path)] == [(None, [None, 1.0]), (0.0, None)]


def test_an_unknown_column_is_refused():
    with pytest.raises(InputError, match=r"'rewrad' is no column.*Did you mean 'reward'"):
        rows_to_table([row("g", rewrad=1.0)])


def test_a_key_that_is_missing_is_refused():
    with pytest.raises(InputError, match="dialogue 'g/0', turn None, column 'turn' is null"):
        rows_to_table([{"group_id": "g", "sample": 0, "turn": None}])


def test_rows_come_back_dialogue_by_dialogue():
    rows = [*turns(2, 1, group="a"), *turns(3, group="b")]
    dialogues = list(table_to_dialogues(rows_to_table(rows)))
    assert [[(r["group_id"], r["sample"], r["turn"]) for r in one] for one in dialogues] == [
        [("a", 0, 0), ("a", 0, 1)],
        [("a", 1, 0)],
        [("b", 0, 0), ("b", 0, 1), ("b", 0, 2)],
    ]
    assert list(table_to_dialogues(rows_to_table(rows).slice(0, 0))) == []


def test_a_long_dialogue_is_not_cut_where_rows_are_read_in_pieces():
    (dialogue,) = table_to_dialogues(rows_to_table(turns(5000)))
    assert [r["turn"] for r in dialogue] == list(range(5000))
