"""The table of columns says what the design says, and nothing is written or read past it."""

import pyarrow as pa
import pytest

from dialrl.errors import InputError
from dialrl.trajectory.endings import END_REASONS, TERMINATED_REASONS, TRUNCATED_REASONS
from dialrl.trajectory.inspection import describe_schema
from dialrl.trajectory.schema import COLUMNS, KEYS, column_for, ordered, outlives, schema_for, stage_of

MESSAGES = "list<element: struct<role: string, name: string, content: string>>"
USAGE = "list<element: struct<role: string, prompt_tokens: int64, cached_tokens: int64, completion_tokens: int64>>"
GRADES = "list<element: struct<indicator: string, level: int32, evidence: string, reasoning: string>>"
GRADE_SAMPLES = "list<element: struct<judge: string, sample: int32, indicator: string, level: int32, status: string>>"

# The file format, column by column.
DESIGNED = {
    "rollout": {
        "group_id": "string", "sample": "int32", "turn": "int32", "dialogue_id": "string", "scenario_id": "string",
        "environment": "string", "messages": MESSAGES, "reply": "string", "thinking": "string", "segment": "int32",
        "prompt_ids": "list<element: int32>", "reply_ids": "list<element: int32>",
        "reply_logprobs": "list<element: float>", "finish_reason": "string", "flags": "list<element: string>",
        "director": "struct<tool: string, argument: string, guidance: string>", "usage": USAGE, "seed": "int64",
        "policy_digest": "string", "policy_step": "int64", "status": "string", "error": "string",
        "end_reason": "string", "terminated": "bool", "truncated": "bool", "outcome": "double",
        "final_messages": MESSAGES, "final_ids": "list<element: int32>",
    },
    "judge": {
        "deficit": "list<element: double>", "increment": "list<element: double>", "position": "list<element: double>",
        "position_estimated": "bool", "grades": GRADES, "grade_samples": GRADE_SAMPLES, "judge_status": "string",
        "judge_error": "string", "stop_turn": "int32", "belief_before": "double", "belief_after": "double",
        "belief_alias": "string", "belief_before_shuffled": "double", "belief_after_shuffled": "double",
        "kl": "double", "implicit_log_ratio": "double", "implicit_reward": "double", "reward_given": "double",
        "crisis": "string", "safety": GRADES, "safety_level": "int32", "safety_status": "string",
        "safety_error": "string",
    },
    "returns": {"reward": "double", "reward_filled": "double", "return": "double"},
    "advantage": {"advantage": "double"},
}  # fmt: skip


def arrow_name(kind: pa.DataType) -> str:
    return str(kind).replace("item: ", "element: ")


def test_every_column_of_the_design_is_there_with_its_type():
    found: dict[str, dict[str, str]] = {}
    for column in COLUMNS.values():
        found.setdefault(column.stage, {})[column.name] = arrow_name(column.type)
    assert found == DESIGNED


def test_every_column_says_what_it_means():
    assert [column.name for column in COLUMNS.values() if not column.description] == []
    assert {column.rows for column in COLUMNS.values()} == {"every", "last"}


def test_keys_may_not_be_null_and_everything_else_may():
    assert {name for name, column in COLUMNS.items() if not column.field.nullable} == set(KEYS)


@pytest.mark.parametrize(
    ("name", "kind", "stage"),
    [
        ("reward_information-gain", "double", "returns"),
        ("reward_information-gain_status", "string", "returns"),
        ("reward_given_status", "string", "returns"),
        ("advantage_turn", "double", "advantage"),
        ("advantage_group+batch", "double", "advantage"),
    ],
)
def test_channels_and_terms_have_columns_of_their_own(name, kind, stage):
    column = column_for(name)
    assert (arrow_name(column.type), column.stage) == (kind, stage)


def test_an_unknown_column_is_refused_with_the_nearest_name():
    with pytest.raises(InputError, match=r"'judge_state' is no column.*Did you mean 'judge_status'\?"):
        column_for("judge_state")
    with pytest.raises(InputError, match="'reward_' is no column"):
        column_for("reward_")
    with pytest.raises(InputError, match="'Reward_X' is no column"):
        column_for("Reward_X")


def test_columns_stand_in_the_order_of_the_stages():
    given = ["advantage", "advantage_turn", "return", "reward_outcome", "turn", "judge_status", "group_id", "reply"]
    assert ordered([*given, "turn"]) == [
        "group_id", "turn", "reply", "judge_status", "reward_outcome", "return", "advantage_turn", "advantage",
    ]  # fmt: skip
    assert schema_for(given).names == ordered(given)


@pytest.mark.parametrize(
    ("names", "stage"),
    [
        (["reply"], "rollout"),
        (["reply", "judge_status"], "judge"),
        (["reply", "belief_after"], "judge"),
        (["judge_status", "return"], "returns"),
        (["return", "advantage"], "advantage"),
    ],
)
def test_the_stage_of_a_file_is_the_furthest_it_has_been_through(names, stage):
    assert stage_of([*KEYS, *names]) == stage


def test_running_a_stage_again_makes_later_columns_stale_and_leaves_other_judges():
    assert outlives("rollout", rerun="returns")
    assert outlives("judge", rerun="judge")
    assert not outlives("returns", rerun="returns")
    assert not outlives("advantage", rerun="judge")


def test_reasons_are_those_of_the_design_and_each_is_of_one_kind():
    assert TERMINATED_REASONS == (
        "success", "collapse", "regression", "oscillation", "farewell", "answer", "format_failure",
    )  # fmt: skip
    assert TRUNCATED_REASONS == ("turn_limit", "token_limit", "stalled", "timeout")
    assert set(END_REASONS) - set(TERMINATED_REASONS) - set(TRUNCATED_REASONS) == {"error"}


def test_the_printed_schema_holds_fixed_and_dynamic_columns():
    printed = {column["name"]: column for column in describe_schema()}
    assert set(COLUMNS) < set(printed)
    assert set(printed) - set(COLUMNS) == {"reward_<channel>", "reward_<channel>_status", "advantage_<term>"}
    assert printed["reward_<channel>_status"]["type"] == "string"
    assert [column["name"] for column in describe_schema(["reward_outcome", "turn"])] == ["reward_outcome", "turn"]
