"""export --to sft, trl, verl and dpo: contexts, chosen dialogues, and pairs that never hold a missing grade."""

import json

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.trajectory_files import row, write

from dialrl.errors import InputError, UsageError
from dialrl.trajectory.exporters.chat import ChatTurn
from dialrl.trajectory.exporters.config import ExportConfig
from dialrl.trajectory.exporters.preferences import Candidate, preferences
from dialrl.trajectory.exporters.stage import export
from dialrl.trajectory.exporters.worth import dialogue_worth, turn_worth

SYSTEM, HELLO = {"role": "system", "content": "Help."}, {"role": "user", "content": "Hello."}


def spoken(*replies, group="g", sample=0, user="Hm.", end_reason="farewell", **columns):
    """A dialogue of these replies; ``columns`` are lists of one value a turn."""
    rows = []
    for turn, reply in enumerate(replies):
        messages = [SYSTEM, HELLO] if turn == 0 else [{"role": "user", "content": user}]
        own = {name: values[turn] for name, values in columns.items()}
        ending = end_reason if turn + 1 == len(replies) else None
        rows.append(
            row(
                group, sample, turn, scenario_id="card", environment="demo", status="ok", reply=reply,
                messages=[{"name": None, **message} for message in messages], end_reason=ending, **own,
            )
        )  # fmt: skip
    return rows


def exported(tmp_path, to, *dialogues, **options):
    """The examples of an export."""
    source = write(tmp_path / "t.parquet", [turn for rows in dialogues for turn in rows])
    output = tmp_path / ("out.parquet" if to == "verl" else f"out.{to}")
    summary = export(source, output, to, ExportConfig(**options), overwrite=True)
    if to == "verl":
        return pq.read_table(output).to_pylist(), summary
    return [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()], summary


def said(role, content):
    return {"role": role, "content": content}


# contexts -----------------------------------------------------------------------------------------------------------


def test_sft_is_one_dialogue_of_messages_ending_with_a_reply(tmp_path):
    (example,), summary = exported(tmp_path, "sft", spoken("Hi.", "Bye."))
    replies = [said("assistant", "Hi."), said("user", "Hm."), said("assistant", "Bye.")]
    assert example == {"messages": [SYSTEM, HELLO, *replies], "dialogue_id": "g/0"}
    assert (summary.counts["dialogues"], summary.counts["turns"]) == (1, 2)


def test_trl_is_one_prompt_and_completion_a_turn_with_its_numbers(tmp_path):
    examples, _ = exported(tmp_path, "trl", spoken("Hi.", "Bye.", reward=[1.0, None]))
    assert examples[0] == {
        "prompt": [SYSTEM, HELLO], "completion": [said("assistant", "Hi.")], "dialogue_id": "g/0", "turn": 0,
        "reward": 1.0,
    }  # fmt: skip
    assert examples[1]["prompt"] == [SYSTEM, HELLO, said("assistant", "Hi."), said("user", "Hm.")]
    assert examples[1]["reward"] is None


def test_verl_is_one_prompt_a_distinct_context_with_running_numbers(tmp_path):
    dialogues = [spoken("Hi.", "Bye."), spoken("Hi.", "Go.", sample=1), spoken("No.", group="h")]
    examples, _ = exported(tmp_path, "verl", *dialogues, split="test")
    assert [(one["extra_info"]["index"], one["extra_info"]["turn"]) for one in examples] == [(0, 0), (1, 1), (2, 0)]
    assert examples[0]["prompt"] == [SYSTEM, HELLO]
    assert (examples[0]["data_source"], examples[0]["ability"]) == ("dialrl/demo", "dialogue")
    assert examples[0]["reward_model"] == {"style": "rule", "ground_truth": "card"}
    assert examples[2]["extra_info"] == {
        "split": "test", "index": 2, "group_id": "h", "scenario_id": "card", "turn": 0,
    }  # fmt: skip


def test_verl_needs_a_file_it_knows_by_its_name(tmp_path):
    source = write(tmp_path / "t.parquet", spoken("Hi."))
    with pytest.raises(UsageError, match=r"ends in \.parquet"):
        export(source, tmp_path / "out.jsonl", "verl")


def test_turns_after_a_stop_stay_out_unless_asked_for(tmp_path):
    rows = spoken("Hi.", "Bye.", "Still?", stop_turn=[1, 1, 1])
    assert len(exported(tmp_path, "trl", rows)[0]) == 2
    assert len(exported(tmp_path, "trl", rows, until="end")[0]) == 3


def test_a_broken_dialogue_is_left_out_and_counted_and_a_turn_without_reply_ends_one(tmp_path):
    broken = spoken("Hi.", sample=1, end_reason="error")
    examples, summary = exported(tmp_path, "sft", spoken("Hi.", None, "Bye."), broken)
    assert [len(example["messages"]) for example in examples] == [3]
    assert summary.counts["broken_dialogues"] == 1


def test_a_file_without_messages_cannot_be_chat(tmp_path):
    source = write(tmp_path / "t.parquet", [row("g", reply="Hi.")])
    with pytest.raises(InputError, match="lacks the column messages"):
        export(source, tmp_path / "out", "sft")


# worth --------------------------------------------------------------------------------------------------------------


def test_a_return_counts_only_if_every_reward_in_it_is_known():
    rows = spoken("a", "b", "c", reward=[1.0, None, 3.0], **{"return": [6.0, 5.0, 3.0]})
    assert turn_worth(rows, "return") == [None, None, 3.0]
    assert turn_worth(rows, "reward") == [1.0, None, 3.0]
    assert (dialogue_worth(rows, "return"), dialogue_worth(rows, "reward")) == (None, None)
    assert dialogue_worth(rows[2:], "reward") == 3.0


def test_a_gain_counts_only_between_two_judged_positions():
    judged = {"deficit": [[-5.0]] * 3, "position": [[-3.0], [-3.0], [-2.0]], "judge_status": ["ok", "missing", "ok"]}
    assert turn_worth(spoken("a", "b", "c", **judged), "gain") == [2.0, None, None]
    whole = spoken("a", "b", "c", **{**judged, "judge_status": ["ok"] * 3})
    assert turn_worth(whole, "gain") == [2.0, 0.0, 1.0]
    assert dialogue_worth(whole, "gain") == 3.0


def test_turns_after_a_stop_are_worth_nothing_to_the_dialogue():
    rows = spoken("a", "b", reward=[1.0, None], stop_turn=[0, 0])
    assert dialogue_worth(rows, "reward") == 1.0
    assert dialogue_worth(rows, "reward", until_end=True) is None


def test_the_best_dialogues_of_each_group_go_out_and_one_with_a_missing_grade_is_never_among_them(tmp_path):
    dialogues = [
        spoken("a", reward=[1.0]),
        spoken("b", sample=1, reward=[None]),
        spoken("c", sample=2, reward=[3.0]),
        spoken("d", group="h", reward=[-1.0]),
    ]
    examples, summary = exported(tmp_path, "sft", *dialogues, best=1)
    assert [example["dialogue_id"] for example in examples] == ["g/2", "h/0"]
    assert summary.figures["ranked_by"] == "reward"
    assert (summary.counts["dialogues_not_chosen"], summary.counts["dialogues_without_worth"]) == (1, 1)


def test_a_file_that_cannot_be_ranked_so_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"cannot be ranked by return: it lacks return\. It can by: reward"):
        exported(tmp_path, "dpo", spoken("a", reward=[1.0]), by="return")
    with pytest.raises(UsageError, match=r"nothing \(run dialrl judge first"):
        exported(tmp_path, "sft", spoken("a"), best=1)


# preference pairs ---------------------------------------------------------------------------------------------------


def test_a_pair_has_one_prompt_and_the_better_reply_chosen(tmp_path):
    dialogues = [
        spoken(reply, sample=place, reward=[worth])
        for place, (reply, worth) in enumerate({"a": 1.0, "b": 3.0, "c": 2.0}.items())
    ]
    (pair,), _ = exported(tmp_path, "dpo", *dialogues)
    assert pair["prompt"] == [SYSTEM, HELLO]
    assert (pair["chosen"], pair["rejected"]) == ([said("assistant", "b")], [said("assistant", "a")])
    assert (pair["chosen_worth"], pair["rejected_worth"], pair["chosen_dialogue"]) == (3.0, 1.0, "g/1")
    every, _ = exported(tmp_path, "dpo", *dialogues, pairs="all")
    assert {(one["chosen_dialogue"], one["rejected_dialogue"]) for one in every} == {
        ("g/1", "g/0"), ("g/2", "g/0"), ("g/1", "g/2"),
    }  # fmt: skip


def test_later_turns_are_paired_only_where_all_before_them_is_the_same(tmp_path):
    rewards = ([0.0, 1.0], [0.0, 2.0], [1.0, 9.0])
    dialogues = [spoken("Hi.", reply, sample=place, reward=rewards[place]) for place, reply in enumerate("ab")]
    dialogues.append(spoken("Yo.", "c", sample=2, reward=rewards[2]))
    pairs, _ = exported(tmp_path, "dpo", *dialogues)
    assert [(pair["turn"], pair["chosen"][0]["content"], pair["rejected"][0]["content"]) for pair in pairs] == [
        (0, "Yo.", "Hi."),
        (1, "b", "a"),
    ]


def test_a_missing_grade_is_never_paired(tmp_path):
    graded = [
        spoken(reply, sample=place, reward=[float(place)], judge_status=["ok"]) for place, reply in enumerate("ab")
    ]
    missing = spoken("c", sample=2, reward=[9.0], judge_status=["missing"])
    unknown = spoken("d", sample=3, reward=[None], judge_status=["ok"])
    pairs, summary = exported(tmp_path, "dpo", *graded, missing, unknown, pairs="all")
    assert [(pair["chosen_dialogue"], pair["rejected_dialogue"]) for pair in pairs] == [("g/1", "g/0")]
    assert summary.counts["turns_without_grade"] == 2
    with pytest.raises(InputError, match="2 turns without grade"):
        exported(tmp_path, "dpo", graded[0], missing, unknown)


def test_equal_replies_and_small_gaps_are_not_paired(tmp_path):
    same = [spoken("a", sample=place, reward=[float(place)]) for place in range(2)]
    close = [spoken("b", sample=2, reward=[1.5])]
    pairs, _ = exported(tmp_path, "dpo", *same, *close, pairs="all")
    assert len(pairs) == 2
    assert len(exported(tmp_path, "dpo", *same, *close, pairs="all", min_gap=1.0)[0]) == 1
    with pytest.raises(InputError, match="is left to export"):
        exported(tmp_path, "dpo", *same)


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xyz"), st.integers(-3, 3)), max_size=12),
    st.sampled_from(["best-worst", "all"]),
    st.sampled_from([0.0, 2.0]),
)
def test_pairs_share_a_context_and_the_chosen_reply_is_worth_more(drawn, pairs, gap):
    candidates = [
        Candidate(ChatTurn({"reply": reply, "number": number}, (said("user", context),)), float(worth))
        for number, (context, reply, worth) in enumerate(drawn)
    ]
    seen = set()
    for pair in preferences(candidates, pairs=pairs, min_gap=gap):
        chosen, rejected = pair.chosen, pair.rejected
        assert chosen.turn.context == rejected.turn.context
        assert chosen.worth > rejected.worth
        assert chosen.worth - rejected.worth >= gap
        assert chosen.turn.row["reply"] != rejected.turn.row["reply"]
        key = (chosen.turn.row["number"], rejected.turn.row["number"])
        assert key not in seen
        seen.add(key)
