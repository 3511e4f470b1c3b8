"""SAGE: the rules of the emotion, the counts, what breaks the rules, refusals, and the published conversations."""

import json

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.benchmark_files import conversation, profile, write_lines
from tests.reference_data import reference

from dialrl.environment.sage.rules import RULES
from dialrl.errors import InputError
from dialrl.evaluate.benchmark_config import SageConfig
from dialrl.evaluate.sage import evaluate_sage
from dialrl.evaluate.sage_conversations import band

QUICK = {"resamples": 50}
CONTENT = (*range(40, 101, 10),)  # 40 to 100
ANGRY = (40, 30, 20, 10, 0)


def evaluated(tmp_path, *conversations, profiles=None, output=None, **options):
    answers = write_lines(tmp_path / "conversations.jsonl", conversations)
    questions = None if profiles is None else write_lines(tmp_path / "profiles.jsonl", map(profile, profiles))
    return evaluate_sage(answers, questions, SageConfig(**{**QUICK, **options}), output=output)


def test_a_change_is_held_within_ten_and_the_sum_below_a_hundred():
    sage, rlver = RULES["sage"], RULES["rlver"]
    assert (sage.after(40, -15), sage.after(40, 25), sage.after(95, 8)) == (30, 50, 100)
    assert (rlver.after(30, -45), rlver.after(30, 25)) == (-15, 55)


@given(st.floats(-50, 100), st.floats(-100, 100))
def test_a_turn_never_moves_the_emotion_further_than_allowed(emotion, change):
    after = RULES["sage"].after(emotion, change)
    assert after <= 100
    assert abs(after - emotion) <= 10 + 1e-9


def test_bands_begin_at_their_thresholds():
    assert [band(emotion) for emotion in (100, 99, 70, 69, 40, 39, 10, 9, -5)] == list("SAABBCCFF")


def test_score_success_and_failure_by_hand(tmp_path):
    middle = (40, 45, 50)
    summary = evaluated(tmp_path, conversation("a", *CONTENT), conversation("b", *ANGRY), conversation("c", *middle))
    shown = summary.to_json()
    assert list(shown)[2:5] == ["score", "success", "failure"]
    assert (shown["score"], shown["success"], shown["failure"]) == (50.0, 1, 1)
    assert shown["bands"] == {"S": 1, "A": 0, "B": 1, "C": 0, "F": 1}
    assert shown["endings"] == {"success": 1, "failure": 1, "farewell": 1, "turn_limit": 0}
    assert shown["emotion_by_turn"]["2"] == {"mean": pytest.approx(130 / 3), "conversations": 3}
    assert (shown["counts"]["arithmetic_mismatches"], shown["counts"]["other_faults"]) == (0, 0)
    json.dumps(shown, allow_nan=False)


def test_ten_lines_of_the_user_are_the_limit(tmp_path):
    ten = conversation("a", *([40] * 10), changes=[0] * 9)
    assert evaluated(tmp_path, ten).figures["endings"]["turn_limit"] == 1
    eleven = conversation("a", *([40] * 11), changes=[0] * 10)
    assert "11 lines of the user; at most 10" in evaluated(tmp_path, eleven).figures["first_faults"][0]


def test_a_sum_that_does_not_add_up_is_counted_and_named(tmp_path):
    wrong = conversation("a", 40, 45, 60, changes=[5, 10])
    summary = evaluated(tmp_path, conversation("b", 40, 50), wrong)
    assert summary.counts["arithmetic_mismatches"] == 1
    assert summary.figures["first_faults"] == ["line 2, history[4]: emotion-point is 60; 45 and a change of 10 make 55"]
    assert summary.figures["score"] == 55.0
    assert any("1 of 2 conversations break the rules 'sage'" in warning for warning in summary.warnings)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (conversation("a", 30, 40), "is 30; an emotion starts at 40"),
        (conversation("a", 40, 50, emo_point=60, emo_state="Emotion-B"), "emo_point is 60, the last emotion 50"),
        (conversation("a", 40, 50, emo_state="Emotion-A"), "emo_state is Emotion-A; 50 is in band B"),
        (conversation("a", *ANGRY, 10), "goes on after its emotion ended it"),
    ],
)
def test_other_breaks_of_the_rules_are_named(tmp_path, broken, message):
    summary = evaluated(tmp_path, broken)
    assert message in summary.figures["first_faults"][0]
    assert summary.counts["arithmetic_mismatches"] + summary.counts["other_faults"] == 1


def test_rlver_starts_lower_moves_freely_and_rewards_nothing_below_zero(tmp_path):
    summary = evaluated(tmp_path, conversation("a", 30, -20), conversation("b", 30, 90), rules="rlver")
    assert (summary.figures["score"], summary.counts["arithmetic_mismatches"]) == (45.0, 0)
    assert summary.figures["settings"]["starts_at"] == 30


def test_profiles_show_which_conversations_are_absent(tmp_path):
    summary = evaluated(tmp_path, conversation("a", 40, 50), profiles=["a", "b"])
    assert summary.counts["profiles_without_conversation"] == 1
    with pytest.raises(InputError, match="line 1, field 'id': 'a' is none of the 1 profiles given"):
        evaluated(tmp_path, conversation("a", 40, 50), profiles=["b"])


def test_a_limit_and_the_results_file(tmp_path):
    output = tmp_path / "items.parquet"
    pair = (conversation("a", *CONTENT), conversation("b", *ANGRY))
    summary = evaluated(tmp_path, *pair, limit=1, output=output)
    assert summary.figures["score"] == 100.0
    assert pq.read_table(output).select(["item", "score", "band", "ending"]).to_pylist() == [
        {"item": "a", "score": 100.0, "band": "S", "ending": "success"}
    ]


def broken_history(**change):
    broken = conversation("a", 40, 50)
    broken["history"][2] = {**broken["history"][2], **change}
    return broken


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (broken_history(planning={}), r"line 1, field 'history\[2\]\.planning\.change': is missing; expected a number"),
        (broken_history(planning={"change": "much"}), "got the text 'much'; expected a number"),
        (broken_history(**{"emotion-point": None}), r"field 'history\[2\]\.emotion-point': is missing"),
        (broken_history(role="npc"), r"field 'history\[2\]\.role': got 'npc'; expected user or assistant"),
        (conversation("a", 40, 50, emo_point="high"), "field 'emo_point': got the text 'high'"),
        (conversation("a", 40, 50, history={}), "field 'history': got an object; expected a list"),
        (conversation("a", 40, 50, history=[]), "holds no line of the user"),
        (conversation("", 40, 50), "field 'id': is empty"),
    ],
)
def test_malformed_conversations_are_refused_with_file_line_and_field(tmp_path, broken, message):
    with pytest.raises(InputError, match=message):
        evaluated(tmp_path, broken)


def test_numbers_may_stand_as_text(tmp_path):
    told = conversation("a", 40, 50, emo_point="50")
    told["history"][2]["planning"]["change"] = "10"
    assert evaluated(tmp_path, told).counts["arithmetic_mismatches"] == 0


def test_a_conversation_or_profile_given_twice_is_refused(tmp_path):
    with pytest.raises(InputError, match="line 2, field 'id': got 'a', which stands on line 1 too"):
        evaluated(tmp_path, conversation("a", 40, 50), conversation("a", 40, 50))
    with pytest.raises(InputError, match="line 2, field 'id'"):
        evaluated(tmp_path, conversation("a", 40, 50), profiles=["a", "a"])


def test_the_published_conversations_of_one_model():
    data = reference("sage")
    answers, profiles = data / "gpt-4o-0806_deepseek-v3-simulator.jsonl", data / "simulator_profile_withfirsttalk.jsonl"
    summary = evaluate_sage(answers, profiles, SageConfig(**QUICK))
    assert [summary.figures[name] for name in ("score", "success", "failure")] == [31.75, 7, 51]
    counted = ("conversations", "arithmetic_mismatches", "other_faults", "profiles_without_conversation")
    assert [summary.counts[name] for name in counted] == [100, 0, 0, 0]
