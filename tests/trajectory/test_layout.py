"""Offsets of groups and dialogues against plain loops, and the order check against sorting."""

from itertools import groupby

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.trajectory_files import row, turns

from dialrl.errors import InputError
from dialrl.trajectory.layout import Layout, check_order, describe_row, floats, integers
from dialrl.trajectory.rows import rows_to_table

KEY = st.tuples(st.sampled_from(["", "a", "aa", "b", "é", "🙂"]), st.integers(0, 3), st.integers(0, 3))


def table_of(keys, chunk=None):
    """Keys as a table, in chunks of ``chunk`` rows."""
    table = rows_to_table([row(*key) for key in keys], ["group_id", "sample", "turn"])
    return table if chunk is None else pa.concat_tables([table.slice(i, chunk) for i in range(0, len(keys), chunk)])


def test_offsets_of_two_groups_by_hand():
    layout = Layout.of(rows_to_table([*turns(2, 1, group="a"), *turns(3, group="b")]))
    assert layout.group_start.tolist() == [0, 3, 6]
    assert layout.dialogue_start.tolist() == [0, 2, 3, 6]
    assert (layout.rows, layout.groups, layout.dialogues) == (6, 2, 3)
    assert layout.turns_D.tolist() == [2, 1, 3]
    assert layout.dialogue_of_row.tolist() == [0, 0, 1, 2, 2, 2]
    assert layout.group_of_row.tolist() == [0, 0, 0, 1, 1, 1]
    assert layout.group_of_dialogue.tolist() == [0, 0, 1]
    assert layout.last_row.tolist() == [1, 2, 5]


def test_equal_samples_of_neighbouring_groups_are_two_dialogues():
    layout = Layout.of(rows_to_table([row("a", 0), row("b", 0)]))
    assert layout.dialogues == 2


def test_an_empty_table_has_no_groups():
    layout = Layout.of(table_of([("a", 0, 0)]).slice(0, 0))
    assert (layout.rows, layout.groups, layout.dialogues) == (0, 0, 0)
    check_order(table_of([("a", 0, 0)]).slice(0, 0), layout, where="here")


@given(st.lists(KEY, min_size=1, max_size=25, unique=True).map(sorted), st.integers(1, 5))
@settings(max_examples=80, deadline=None)
def test_offsets_agree_with_a_plain_loop(keys, chunk):
    table = table_of(keys, chunk)
    layout = Layout.of(table)
    groups = [list(rows) for _, rows in groupby(keys, key=lambda key: key[0])]
    dialogues = [list(rows) for _, rows in groupby(keys, key=lambda key: key[:2])]
    assert np.diff(layout.group_start).tolist() == [len(rows) for rows in groups]
    assert layout.turns_D.tolist() == [len(rows) for rows in dialogues]
    assert [keys[last] for last in layout.last_row] == [rows[-1] for rows in dialogues]
    names = [rows[0][0] for rows in groups]
    assert [names[group] for group in layout.group_of_row] == [key[0] for key in keys]
    assert [names[group] for group in layout.group_of_dialogue] == [rows[0][0] for rows in dialogues]
    assert [dialogues[dialogue][0][:2] for dialogue in layout.dialogue_of_row] == [key[:2] for key in keys]
    check_order(table, layout, where="here")


@given(st.lists(KEY, min_size=2, max_size=12))
@settings(max_examples=150, deadline=None)
def test_exactly_the_strictly_sorted_are_in_order(keys):
    table = table_of(keys)
    if keys == sorted(set(keys)):
        check_order(table, Layout.of(table), where="here")
    else:
        with pytest.raises(InputError, match="here is not sorted by"):
            check_order(table, Layout.of(table), where="here")


def test_the_first_row_out_of_order_is_named():
    table = table_of([("a", 0, 0), ("a", 1, 0), ("a", 1, 0), ("a", 0, 5)])
    with pytest.raises(InputError, match="dialogue 'a/1', turn 0 comes after dialogue 'a/1', turn 0"):
        check_order(table, Layout.of(table), where="here")
    assert describe_row(table, 3) == "dialogue 'a/0', turn 5"


def test_columns_become_numpy_with_null_as_nan():
    table = pa.table({"turn": pa.array([0, 1], pa.int32()), "reward": pa.array([None, 0.5])})
    assert integers(table["turn"]).dtype == np.int64
    np.testing.assert_array_equal(floats(table["reward"]), [np.nan, 0.5])
    two_chunks = pa.chunked_array([pa.array([1.0]), pa.array([None], pa.float64())])
    np.testing.assert_array_equal(floats(two_chunks), [1.0, np.nan])
