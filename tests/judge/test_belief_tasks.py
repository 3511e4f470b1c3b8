"""Rows to cuts and beliefs back to rows, with ids small enough to count."""

import numpy as np
import pytest

from dialrl.errors import InputError
from dialrl.judge.belief_tasks import dialogue_tasks
from dialrl.model.belief.gold import GoldAlias

ALIASES = (GoldAlias("one", (70,), (80, 81)), GoldAlias("two", (70,), (82,)))
HEADER = [60, 61]


def turn(number, prompt, reply, segment=0, **more):
    return {
        "group_id": "g", "sample": 0, "turn": number, "segment": segment, "prompt_ids": prompt, "reply_ids": reply,
        "status": "ok", **more,
    }  # fmt: skip


def made(rows, limit=None, aliases=ALIASES):
    return dialogue_tasks(rows, aliases, header_ids=HEADER, limit_tokens=limit)


def test_an_answered_dialogue_has_a_cut_where_each_turn_begins():
    dialogue = made([turn(0, [1, 2], [3]), turn(1, [4], [5, 6], end_reason="answer", final_ids=[])])
    (task,) = dialogue.tasks
    assert (task.cuts, task.trunk_ids.tolist(), dialogue.places) == ((2, 4), [1, 2, 3, 4], [(0, 1)])


def test_a_dialogue_cut_by_a_limit_has_one_more_after_its_final_ids_and_the_next_header():
    dialogue = made([turn(0, [1, 2], [3]), turn(1, [4], [5], end_reason="turn_limit", final_ids=[7, 8])])
    (task,) = dialogue.tasks
    assert (task.cuts, task.trunk_ids.tolist()) == ((2, 4, 9), [1, 2, 3, 4, 5, 7, 8, 60, 61])


@pytest.mark.parametrize(("reason", "final"), [("format_failure", [7]), ("answer", [7]), ("token_limit", [])])
def test_other_endings_have_none(reason, final):
    assert made([turn(0, [1, 2], [3], end_reason=reason, final_ids=final)]).tasks[0].cuts == (2,)


def test_a_cut_lives_in_its_turns_segment():
    rows = [turn(0, [1], [2]), turn(1, [3], [4]), turn(2, [1, 9], [5], 1, end_reason="turn_limit", final_ids=[6])]
    dialogue = made(rows)
    assert [task.trunk_ids.tolist() for task in dialogue.tasks] == [[1, 2, 3], [1, 9, 5, 6, 60, 61]]
    assert ([task.cuts for task in dialogue.tasks], dialogue.places) == ([(1, 3), (2, 6)], [(0, 1), (2, 3)])


def test_cuts_too_long_for_the_model_are_left_out():
    rows = [turn(0, [1, 2], [3]), turn(1, [4], [5], end_reason="turn_limit", final_ids=[7])]
    # wrapper 1 + answer 2 + cut: the second cut needs 7 places
    assert [made(rows, limit).tasks[0].cuts for limit in (8, 7, 6)] == [(2, 4), (2, 4), (2,)]
    assert made(rows, 4).tasks == []


def test_the_best_alias_counts_and_a_turn_has_the_belief_before_and_after_it():
    dialogue = made([turn(0, [1], [2]), turn(1, [3], [4], end_reason="turn_limit", final_ids=[5])])
    columns = dialogue.columns([np.array([[-5.0, -4.0], [-3.0, -3.5], [-1.0, -2.0]])])
    assert [tuple(row.values())[3:] for row in columns] == [(-4.0, -3.0, "one"), (-3.0, -1.0, "one")]


def test_gains_telescope_to_the_last_belief_less_the_first():
    beliefs = np.array([[-5.0, -4.0], [-3.0, -3.5], [-1.0, -2.0]])
    columns = made([turn(0, [1], [2]), turn(1, [3], [4], end_reason="turn_limit", final_ids=[5])]).columns([beliefs])
    assert sum(row["belief_after"] - row["belief_before"] for row in columns) == beliefs[2].max() - beliefs[0].max()


def test_a_belief_that_is_not_finite_costs_the_two_gains_it_touches():
    rows = [turn(n, [1], [2]) for n in range(3)] + [turn(3, [1], [2], end_reason="answer")]
    columns = made(rows).columns([np.array([[-4.0, -5.0], [-3.0, np.nan], [-2.0, -2.5], [-1.0, -9.0]])])
    assert [(row["belief_before"], row["belief_after"]) for row in columns] == [
        (-4.0, None), (None, -2.0), (-2.0, -1.0), (-1.0, None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "aliases"),
    [
        ([turn(0, [1], [2])], ()),
        ([turn(0, [1], [2], status="error")], ALIASES),
        ([turn(0, None, None)], ALIASES),
    ],
    ids=["no answer", "failed in the rollout", "no reply"],
)
def test_where_there_is_nothing_to_score_beliefs_are_null(rows, aliases):
    rows[0].update(status=rows[0].get("status", "ok"))
    dialogue = made(rows, aliases=aliases)
    (columns,) = dialogue.columns([])
    assert (dialogue.tasks, columns["belief_before"], columns["belief_after"]) == ([], None, None)


def test_turns_without_ids_are_refused():
    with pytest.raises(InputError, match="'g/0', turn 1 has no prompt_ids"):
        made([turn(0, [1], [2]), turn(1, None, None)])
