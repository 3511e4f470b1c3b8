"""Logged turns become a sorted, completed trajectory file; what contradicts itself is refused by line and key."""

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dialrl.errors import InputError, MissingInputError, OutputExistsError
from dialrl.trajectory.importers.config import ImportTurnsConfig
from dialrl.trajectory.importers.turns import import_turns
from dialrl.trajectory.reader import TrajectoryFile


def turn(group="a", sample=0, number=0, **more):
    return {"group_id": group, "sample": sample, "turn": number, **more}


def write(tmp_path, turns, name="log.jsonl"):
    path = tmp_path / name
    lines = [entry if isinstance(entry, str) else json.dumps(entry) for entry in turns]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def imported(tmp_path, turns, **options):
    output = tmp_path / "out.parquet"
    import_turns(write(tmp_path, turns), output, ImportTurnsConfig(**options), overwrite=True)
    return TrajectoryFile.open(output).read().to_pylist()


def refused(tmp_path, turns, match, **options):
    output = tmp_path / "out.parquet"
    with pytest.raises(InputError, match=match):
        import_turns(write(tmp_path, turns), output, ImportTurnsConfig(**options))
    assert [path.name for path in tmp_path.iterdir()] == ["log.jsonl"]  # nothing visible, nothing left over


# keys ---------------------------------------------------------------------------------------------------------------


def test_turns_in_any_order_are_sorted_and_keyed(tmp_path):
    turns = [turn("b", 0, 1), turn("b", 10, 0), turn("a", 0, 0), turn("b", 2, 0), turn("b", 0, 0)]
    rows = imported(tmp_path, turns)
    keys = [(row["group_id"], row["sample"], row["turn"]) for row in rows]
    assert keys == [("a", 0, 0), ("b", 0, 0), ("b", 0, 1), ("b", 2, 0), ("b", 10, 0)]
    assert [row["dialogue_id"] for row in rows] == ["a/0", "b/0", "b/0", "b/2", "b/10"]
    assert {row["environment"] for row in rows} == {"import"}
    assert [row["scenario_id"] for row in rows] == ["a", "b", "b", "b", "b"]


def test_groups_are_sorted_as_the_reader_expects_beyond_ascii(tmp_path):
    names = ["z", "é", "\U0001f600", "\uffff", "A"]
    rows = imported(tmp_path, [turn(name) for name in names])
    assert [row["group_id"] for row in rows] == sorted(names)


def test_the_same_turn_twice_is_refused_with_both_lines(tmp_path):
    turns = [turn("a", 0, 0), turn("a", 0, 1), turn("a", "0", 1.0)]
    refused(tmp_path, turns, r"lines 2 and 3 are the same turn: group_id 'a', sample 0, turn 1")


def test_a_missing_or_null_key_is_refused(tmp_path):
    refused(tmp_path, [turn(), {"group_id": "a", "turn": None}], r"line 2 lacks sample, turn")


def test_a_group_id_is_text(tmp_path):
    refused(tmp_path, [turn("4"), turn(4)], r"line 2, key 'group_id': got 4; expected text in quotes")


def test_negative_numbers_are_refused(tmp_path):
    refused(tmp_path, [turn(number=-1)], r"line 1, key 'turn': got -1; expected 0 or more")


def test_unknown_key_is_refused_with_the_nearest_name(tmp_path):
    refused(tmp_path, [turn(), turn(number=1, repply="x")], r"line 2: unknown key 'repply'. Did you mean 'reply'")


@pytest.mark.parametrize("key", ["return", "reward_filled"])
def test_what_a_stage_computes_is_refused_with_the_way_out(tmp_path, key):
    refused(tmp_path, [turn(**{key: 1.0})], rf"'{key}' is computed by dialrl returns.*key 'reward'")


def test_a_dialogue_id_that_contradicts_the_keys_is_refused(tmp_path):
    assert imported(tmp_path, [turn(dialogue_id="a/0")])[0]["dialogue_id"] == "a/0"
    (tmp_path / "out.parquet").unlink()
    (tmp_path / "out.parquet.run.json").unlink()
    refused(tmp_path, [turn(dialogue_id="a-0")], r"key 'dialogue_id': got 'a-0'; expected group_id/sample, 'a/0'")


# gaps ---------------------------------------------------------------------------------------------------------------


def test_a_gap_is_refused_unless_allowed_and_then_time_is_kept(tmp_path):
    turns = [turn(number=0), turn(number=3), turn("b", number=1)]
    rows = imported(tmp_path, turns, allow_gaps=True)
    assert [row["turn"] for row in rows] == [0, 3, 1]
    for path in tmp_path.glob("out*"):
        path.unlink()
    refused(tmp_path, turns, r"line 2, key 'turn': dialogue 'a/0' goes on to turn 3 but turn 1 is not in the file")


def test_a_dialogue_that_begins_late_has_a_gap(tmp_path):
    refused(tmp_path, [turn(number=1)], r"turn 0 is not in the file.*--allow-gaps")


# rewards and endings ------------------------------------------------------------------------------------------------


def test_reward_becomes_reward_given(tmp_path):
    rows = imported(tmp_path, [turn(reward=0.5), turn(number=1)])
    assert [row["reward_given"] for row in rows] == [0.5, None]
    assert "reward" not in rows[0]


def test_reward_under_both_names_is_refused(tmp_path):
    refused(tmp_path, [turn(reward=1, reward_given=1)], "'reward' and 'reward_given' are the same column")


def test_outcome_stands_on_the_last_turn_only(tmp_path):
    assert [row["outcome"] for row in imported(tmp_path, [turn(number=1, outcome=1), turn(outcome=None)])] == [None, 1]
    for path in tmp_path.glob("out*"):
        path.unlink()
    turns = [turn(outcome=1), turn(number=1, outcome=1)]
    refused(tmp_path, turns, r"line 1, key 'outcome': stands on turn 0; expected on the last turn \(1\) only")


@pytest.mark.parametrize(
    ("reason", "terminated", "truncated", "status"),
    [
        ("success", True, False, "ok"),
        ("turn_limit", False, True, "ok"),
        ("error", False, False, "error"),
    ],
)
def test_an_ending_says_whether_the_dialogue_came_to_its_end(tmp_path, reason, terminated, truncated, status):
    row = imported(tmp_path, [turn(end_reason=reason)])[0]
    assert (row["terminated"], row["truncated"], row["status"]) == (terminated, truncated, status)


def test_an_unknown_ending_is_refused(tmp_path):
    refused(tmp_path, [turn(end_reason="succes")], r"got 'succes'; expected one of .*Did you mean 'success'")


def test_a_contradicted_ending_is_refused(tmp_path):
    refused(tmp_path, [turn(end_reason="success", truncated=True)], r"key 'truncated': got True; expected False")


# judgements ---------------------------------------------------------------------------------------------------------


def test_positions_follow_from_deficit_and_increments(tmp_path):
    turns = [turn(deficit=[-3, -4], increment=[1, 1]), turn(number=1, increment=None), turn(number=2, increment=[0, 2])]
    rows = imported(tmp_path, turns)
    assert [row["deficit"] for row in rows] == [[-3, -4]] * 3
    assert [row["position"] for row in rows] == [[-2, -3], [-2, -3], [-2, -1]]
    assert [row["position_estimated"] for row in rows] == [False, True, False]
    assert [row["judge_status"] for row in rows] == ["ok", "missing", "ok"]


def test_given_positions_stay_and_a_missing_one_is_carried_forward(tmp_path):
    turns = [turn(deficit=[-3], position=[-2]), turn(number=1), turn(number=2, position=[-1.5])]
    rows = imported(tmp_path, turns)
    assert [row["position"] for row in rows] == [[-2], [-2], [-1.5]]
    assert [row["position_estimated"] for row in rows] == [False, True, False]
    assert "increment" not in rows[0]


def test_increments_without_a_deficit_stay_increments(tmp_path):
    rows = imported(tmp_path, [turn(increment=[1, 2])])
    assert rows[0]["increment"] == [1, 2]
    assert rows[0]["judge_status"] == "ok"
    assert "position" not in rows[0]


def test_dialogues_without_judgements_get_no_judge_columns(tmp_path):
    rows = imported(tmp_path, [turn(reply="Hello.", outcome=0)])
    assert not {"judge_status", "position", "deficit"} & set(rows[0])


def test_two_deficits_in_a_dialogue_are_refused_and_in_a_group_counted(tmp_path):
    two = [turn(deficit=[-3], increment=[1]), turn(sample=1, deficit=[-4], increment=[1])]
    summary = import_turns(write(tmp_path, two), tmp_path / "out.parquet")
    assert any("1 groups have dialogues with different initial deficits" in warning for warning in summary.warnings)
    for path in tmp_path.glob("out*"):
        path.unlink()
    turns = [turn(deficit=[-3], increment=[1]), turn(number=1, deficit=[-4], increment=[1])]
    refused(tmp_path, turns, r"line 2, key 'deficit': got \[-4.0\], but \[-3.0\] in line 1")


def test_other_numbers_of_axes_are_refused(tmp_path):
    turns = [turn(deficit=[-3, -3], increment=[1, 1]), turn(number=1, increment=[1, 1, 1])]
    refused(tmp_path, turns, r"line 2, key 'increment': has 3 axes; expected 2")


def test_a_known_increment_of_a_missing_judgement_is_refused(tmp_path):
    refused(tmp_path, [turn(increment=[1], judge_status="missing")], "is known although judge_status is 'missing'")


def test_log_probs_need_their_ids(tmp_path):
    refused(tmp_path, [turn(reply_ids=[1, 2], reply_logprobs=[-0.5])], "has 1 entries for 2 reply_ids")
    refused(tmp_path, [turn(reply_logprobs=[-0.5])], "has 1 entries for no reply_ids")


# lines --------------------------------------------------------------------------------------------------------------


def test_a_text_may_hold_what_other_tools_take_for_a_line_end(tmp_path):
    text = "one\u2028two\u0085three\x0bfour"
    path = tmp_path / "log.jsonl"
    path.write_bytes(json.dumps(turn(reply=text), ensure_ascii=False).encode() + b"\r\n\n")
    import_turns(path, tmp_path / "out.parquet")
    assert TrajectoryFile.open(tmp_path / "out.parquet").read()["reply"].to_pylist() == [text]


def test_the_last_line_may_lack_its_end_and_the_first_may_have_a_byte_order_mark(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(turn()).encode())
    assert import_turns(path, tmp_path / "out.parquet").counts["turns"] == 1


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"group_id": "a", "sample": 0', r"line 2 is not valid JSON"),
        ("[1, 2]", "line 2 holds a list; expected one object a line"),
        ('{"group_id": "a", "sample": 0, "turn": 1, "turn": 2}', "line 2: key 'turn' stands twice"),
        ('{"group_id": "a", "sample": 0, "turn": 1, "outcome": NaN}', "holds NaN"),
        ('{"group_id": "a", "sample": 0, "turn": 1, "outcome": 1e999}', "key 'outcome': got inf"),
        (
            '{"group_id": "a", "sample": 0, "turn": 1, "reply": "\\ud800"}',
            "line 2, key 'reply': holds a lone surrogate",
        ),
        ('{"group_id": "\\udfff", "sample": 0, "turn": 1}', "line 2, key 'group_id': holds a lone surrogate"),
        ('{"group_id": "a", "sample": 0, "turn": 1, "\\ud800": 1}', r"line 2: unknown key '\\ud800'"),
        ("[" * 100_000, "line 2 is not valid JSON"),
    ],
)
def test_a_broken_line_is_named(tmp_path, line, message):
    refused(tmp_path, [turn(), line], message)


def test_bytes_that_are_no_text_are_named(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_bytes(json.dumps(turn()).encode() + b'\n{"group_id": "\xff"}\n')
    with pytest.raises(InputError, match=r"line 2 is not UTF-8 at byte 14"):
        import_turns(path, tmp_path / "out.parquet")


def test_missing_empty_and_folder_inputs_are_refused(tmp_path):
    output = tmp_path / "out.parquet"
    with pytest.raises(MissingInputError, match="does not exist"):
        import_turns(tmp_path / "nothing.jsonl", output)
    with pytest.raises(InputError, match="is a folder"):
        import_turns(tmp_path, output)
    with pytest.raises(InputError, match="holds no turns"):
        import_turns(write(tmp_path, [""]), output)


def test_an_existing_output_is_refused_unless_replaced(tmp_path):
    path, output = write(tmp_path, [turn()]), tmp_path / "out.parquet"
    import_turns(path, output)
    with pytest.raises(OutputExistsError, match="--overwrite"):
        import_turns(path, output)
    assert import_turns(path, output, overwrite=True).counts["turns"] == 1


def test_lineage_names_the_source_and_what_was_counted(tmp_path):
    import_turns(write(tmp_path, [turn(increment=None)]), tmp_path / "out.parquet")
    record = TrajectoryFile.open(tmp_path / "out.parquet").lineage.record("import")
    assert record.inputs[0].name == "log.jsonl"
    assert record.options["from"] == "turns"
    assert record.counts["missing_judgements"] == 1


# order --------------------------------------------------------------------------------------------------------------


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 40))
def test_order_of_lines_and_size_of_batches_change_nothing(tmp_path_factory, seed, batch_rows):
    folder = tmp_path_factory.mktemp("order")
    turns = [
        turn(f"g{group}", sample, number, reply=f"{group}{sample}{number}", deficit=[-9], increment=[number])
        for group in range(4)
        for sample in range(3)
        for number in range(1 + (group + sample) % 4)
    ]
    expected = imported(folder, turns)
    random.Random(seed).shuffle(turns)
    assert imported(folder, turns, batch_rows=batch_rows) == expected
