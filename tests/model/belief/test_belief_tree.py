"""The layout of the packed belief forward, worked out by hand."""

import numpy as np
import pytest

from dialrl.errors import InputError
from dialrl.model.belief.gold import GoldAlias
from dialrl.model.belief.tree import BeliefTask, Branches, build_tree, join

# trunk 5 6 7; wrapper 8; answers "9 4" and "3" at the cuts 2 and 3
TASK = BeliefTask(np.array([5, 6, 7]), (2, 3), (GoldAlias("a", (8,), (9, 4)), GoldAlias("b", (8,), (3,))))


def test_branches_continue_the_logical_positions_of_their_cut():
    tree = build_tree(TASK)
    assert tree.ids_N.tolist() == [5, 6, 7, 8, 9, 8, 9]  # the wrapper stands once a cut, last answer tokens nowhere
    assert tree.positions_N.tolist() == [0, 1, 2, 2, 3, 3, 4]


def test_a_first_token_is_predicted_at_its_logical_predecessor():
    tree = build_tree(TASK)
    assert tree.targets_S.tolist() == [9, 4, 3, 9, 4, 3]
    assert tree.predictors_S.tolist() == [3, 4, 3, 5, 6, 5]
    assert tree.entries_S.tolist() == [0, 0, 1, 2, 2, 3]


def test_a_branch_sees_the_trunk_before_its_cut_its_parent_and_itself():
    visible = build_tree(TASK).visible()
    seen = [np.flatnonzero(row).tolist() for row in visible]
    assert seen == [[0], [0, 1], [0, 1, 2], [0, 1, 3], [0, 1, 3, 4], [0, 1, 2, 5], [0, 1, 2, 5, 6]]


def test_without_a_wrapper_an_answer_is_predicted_by_the_trunk():
    tree = build_tree(BeliefTask(np.array([5, 6, 7]), (2,), (GoldAlias("a", (), (9, 4)),)))
    assert (tree.predictors_S.tolist(), tree.positions_N.tolist()) == ([1, 3], [0, 1, 2, 2])
    assert np.flatnonzero(tree.visible()[3]).tolist() == [0, 1, 3]


def test_a_tokenizer_that_merges_wrapper_and_answer_gets_two_wrappers():
    aliases = (GoldAlias("a", (8,), (9,)), GoldAlias("b", (8, 2), (3,)))
    tree = build_tree(BeliefTask(np.array([5, 6]), (2,), aliases))
    assert tree.ids_N.tolist() == [5, 6, 8, 8, 2]
    assert tree.predictors_S.tolist() == [2, 4]
    assert np.flatnonzero(tree.visible()[4]).tolist() == [0, 1, 3, 4]


@pytest.mark.parametrize(("cuts", "aliases"), [((0,), TASK.aliases), ((4,), TASK.aliases), ((1,), ())])
def test_a_cut_outside_the_trunk_and_no_answer_are_refused(cuts, aliases):
    with pytest.raises(InputError, match="cuts from 1 to 3"):
        BeliefTask(np.array([5, 6, 7]), cuts, aliases)


def test_several_dialogues_stand_in_one_row_and_see_nothing_of_each_other():
    row = join([build_tree(TASK), build_tree(TASK)])
    assert row.positions_N.tolist() == [0, 1, 2, 2, 3, 3, 4] * 2  # positions and entries stay the dialogue's own
    assert row.entries_S.tolist() == [0, 0, 1, 2, 2, 3] * 2
    assert row.predictors_S.tolist() == [3, 4, 3, 5, 6, 5, 10, 11, 10, 12, 13, 12]
    seen = [np.flatnonzero(line).tolist() for line in row.visible()]
    assert seen[:7] == [[0], [0, 1], [0, 1, 2], [0, 1, 3], [0, 1, 3, 4], [0, 1, 2, 5], [0, 1, 2, 5, 6]]
    assert seen[7:] == [[place + 7 for place in line] for line in seen[:7]]


def test_a_row_is_attended_to_in_pieces_trunk_by_trunk_and_cut_by_cut():
    row = join([build_tree(TASK), build_tree(TASK)])
    assert row.trunks() == [(0, 3), (7, 10)]
    assert row.branches() == [
        Branches(3, 5, 0, 2),
        Branches(5, 7, 0, 3),
        Branches(10, 12, 7, 9),
        Branches(12, 14, 7, 10),
    ]
    assert row.visible_in(row.branches()[3]).tolist() == [[True, False], [True, True]]


def test_answers_that_begin_alike_do_not_see_each_other():
    """ "New York" and "New York City": tokens 9 4 and 9 4 3 behind the wrapper 8."""
    task = BeliefTask(np.array([5]), (1,), (GoldAlias("a", (8,), (9, 4)), GoldAlias("b", (8,), (9, 4, 3))))
    tree = build_tree(task)
    assert tree.ids_N.tolist() == [5, 8, 9, 9, 4]
    assert [np.flatnonzero(line).tolist() for line in tree.visible()[2:]] == [[0, 1, 2], [0, 1, 3], [0, 1, 3, 4]]
    assert (tree.predictors_S.tolist(), tree.targets_S.tolist()) == ([1, 2, 1, 3, 4], [9, 4, 9, 4, 3])
