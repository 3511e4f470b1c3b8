"""The trajectory file's columns: one row per policy turn, every column with its type, stage and meaning.

This table is the single source: writers and readers take their Arrow types from it, ``dialrl inspect --schema``
prints it and the documentation page is checked against it.
null means *not known*; never 0, NaN or a sentinel. Not here: reading,
writing, and what the numbers mean (``docs/state-model.md``, the stage pages).
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from dialrl.config import nearest
from dialrl.errors import InputError

SCHEMA_VERSION = 1
STAGES = ("rollout", "judge", "returns", "advantage")
KEYS = ("group_id", "sample", "turn")

MESSAGES = pa.list_(pa.struct([("role", pa.string()), ("name", pa.string()), ("content", pa.string())]))
IDS = pa.list_(pa.int32())
VECTOR = pa.list_(pa.float64())
GRADES = pa.list_(
    pa.struct(
        [("indicator", pa.string()), ("level", pa.int32()), ("evidence", pa.string()), ("reasoning", pa.string())]
    )
)
GRADE_SAMPLES = pa.list_(
    pa.struct(
        [
            ("judge", pa.string()),
            ("sample", pa.int32()),
            ("indicator", pa.string()),
            ("level", pa.int32()),
            ("status", pa.string()),
        ]
    )
)
DIRECTOR = pa.struct([("tool", pa.string()), ("argument", pa.string()), ("guidance", pa.string())])
USAGE = pa.list_(
    pa.struct(
        [
            ("role", pa.string()),
            ("prompt_tokens", pa.int64()),
            ("cached_tokens", pa.int64()),
            ("completion_tokens", pa.int64()),
        ]
    )
)


@dataclass(frozen=True)
class Column:
    """One column: ``stage`` is the stage that writes it, ``rows`` the rows on which it may stand."""

    name: str
    type: pa.DataType
    stage: str
    rows: str
    description: str

    @property
    def field(self) -> pa.Field:
        return pa.field(self.name, self.type, nullable=self.name not in KEYS)


def _columns(stage: str, rows: str, entries: Iterable[tuple[str, pa.DataType, str]]) -> list[Column]:
    return [Column(name, kind, stage, rows, description) for name, kind, description in entries]


_TABLE: list[Column] = [
    *_columns(
        "rollout",
        "every",
        [
            ("group_id", pa.string(), "scenario and opening line: the dialogues that are compared with each other"),
            ("sample", pa.int32(), "number of the dialogue inside its group, from 0"),
            ("turn", pa.int32(), "policy turn, from 0"),
            ("dialogue_id", pa.string(), "group_id/sample"),
            ("scenario_id", pa.string(), "the scenario card"),
            ("environment", pa.string(), "who answered the policy: demo, support, search, or import"),
            ("messages", MESSAGES, "messages since the last policy turn (turn 0: system prompt and opening line)"),
            ("reply", pa.string(), "the policy's reply: reply_ids decoded, unstripped, without special tokens"),
            ("thinking", pa.string(), "what stood inside the reply's think block"),
            ("segment", pa.int32(), "training sequence of the dialogue the turn belongs to, from 0"),
            ("prompt_ids", IDS, "token ids that are new in the segment before this reply (untrained context)"),
            ("reply_ids", IDS, "token ids the policy sampled, the end-of-turn token included if it was sampled"),
            ("reply_logprobs", pa.list_(pa.float32()), "log-prob of each sampled id under the distribution drawn from"),
            ("finish_reason", pa.string(), "why sampling ended: stop, length, error"),
            ("flags", pa.list_(pa.string()), "observations on the turn, such as broken_bytes or control_tokens"),
            ("director", DIRECTOR, "what the director did before the user's next line"),
            ("usage", USAGE, "tokens of every model call made for this turn, by role"),
            ("seed", pa.int64(), "seed the reply was drawn with"),
            ("policy_digest", pa.string(), "digest of the weights that sampled the reply"),
            ("policy_step", pa.int64(), "updates those weights had seen"),
            ("status", pa.string(), "ok, or error for a dialogue that broke"),
            ("error", pa.string(), "type and message of what broke"),
        ],
    ),
    *_columns(
        "rollout",
        "last",
        [
            ("end_reason", pa.string(), "why the dialogue ended (see the list of reasons)"),
            ("terminated", pa.bool_(), "the dialogue came to an end of its own"),
            ("truncated", pa.bool_(), "the dialogue was cut by a limit"),
            (
                "outcome",
                pa.float64(),
                "outcome as the environment defines it; from judge where it follows from the grades",
            ),
            ("final_messages", MESSAGES, "messages that followed the last reply"),
            ("final_ids", IDS, "token ids that followed the last reply"),
        ],
    ),
    *_columns(
        "judge",
        "every",
        [
            ("deficit", VECTOR, "initial deficit P_0 by axis, one assessment a group"),
            ("increment", VECTOR, "increment v of this turn by axis; null when the judgement is missing"),
            ("position", VECTOR, "state after this reply by axis; carried forward when the judgement is missing"),
            ("position_estimated", pa.bool_(), "the position was carried forward over a missing judgement"),
            ("grades", GRADES, "the verdict used: a level an indicator, with evidence"),
            ("grade_samples", GRADE_SAMPLES, "every sample and panel member behind the verdict"),
            ("judge_status", pa.string(), "ok, repaired or missing"),
            ("judge_error", pa.string(), "why a judgement is missing"),
            ("stop_turn", pa.int32(), "turn at which a stop rule fired, on every row; null: none, all turns count"),
            (
                "belief_before",
                pa.float64(),
                "mean log-prob of the answer before this turn (best alias); over needs, log q after the reply",
            ),
            (
                "belief_after",
                pa.float64(),
                "mean log-prob of the answer after this turn (best alias); over needs, log q after the user's answer",
            ),
            ("belief_alias", pa.string(), "the alias behind belief_after; over needs, the need believed in most"),
            ("belief_before_shuffled", pa.float64(), "over needs: belief_before of another dialogue's need (control)"),
            ("belief_after_shuffled", pa.float64(), "over needs: belief_after of another dialogue's need (control)"),
            ("kl", pa.float64(), "sum over the turn's sampled tokens of log pi - log pi_ref"),
            ("implicit_log_ratio", pa.float64(), "sum over the turn's sampled tokens of log phi - log pi_ref"),
            ("implicit_reward", pa.float64(), "the turn's reward by an implicit reward model phi (channel implicit)"),
            ("crisis", pa.string(), "kind of crisis of the card, where the reply was to be checked for safety"),
            ("safety", GRADES, "the check of safety: levels 0 and below, an indicator; never part of a reward"),
            ("safety_level", pa.int32(), "lowest level in safety: 0 nothing found, -1 a lapse, -2 harmful"),
            ("safety_status", pa.string(), "ok, repaired or missing; null: not checked"),
            ("safety_error", pa.string(), "why a check of safety is missing"),
            ("reward_given", pa.float64(), "reward that came with imported dialogues (channel given)"),
        ],
    ),
    *_columns(
        "returns",
        "every",
        [
            ("reward", pa.float64(), "weighted sum of the channels; null where one is missing, and after a stop"),
            ("reward_filled", pa.float64(), "reward, missing ones filled; null in a dropped dialogue and after a stop"),
            (
                "return",
                pa.float64(),
                "discounted reward_filled from this turn on; null where reward or reward_filled is",
            ),
        ],
    ),
    *_columns(
        "advantage",
        "every",
        [("advantage", pa.float64(), "weighted sum of the terms: what every sampled token of the turn is weighted by")],
    ),
]

COLUMNS: dict[str, Column] = {column.name: column for column in _TABLE}

_DYNAMIC: tuple[tuple[re.Pattern[str], pa.DataType, str, str], ...] = (
    (re.compile(r"reward_[a-z0-9][a-z0-9_-]*_status"), pa.string(), "returns", "known, not_applicable or missing"),
    (re.compile(r"reward_[a-z0-9][a-z0-9_-]*"), pa.float64(), "returns", "value of one reward channel"),
    (re.compile(r"advantage_[a-z0-9][a-z0-9_+.-]*"), pa.float64(), "advantage", "one term, before its weight"),
)


# How the dynamic columns are listed.
DYNAMIC_COLUMNS: tuple[Column, ...] = tuple(
    Column(shown, kind, stage, "every", description)
    for shown, (_, kind, stage, description) in zip(
        ("reward_<channel>_status", "reward_<channel>", "advantage_<term>"), _DYNAMIC, strict=True
    )
)


def column_for(name: str) -> Column:
    """The column ``name``: a fixed one, or reward_<channel>, reward_<channel>_status, advantage_<term>.

    Raises InputError with the nearest known name.
    """
    if name in COLUMNS:
        return COLUMNS[name]
    for pattern, kind, stage, description in _DYNAMIC:
        if pattern.fullmatch(name):
            return Column(name, kind, stage, "every", description)
    raise InputError(
        f"'{name}' is no column of a trajectory file.{nearest(name, COLUMNS)} See: dialrl inspect --schema"
    )


def field_for(name: str) -> pa.Field:
    """The Arrow field of column ``name``."""
    return column_for(name).field


def schema_for(names: Iterable[str]) -> pa.Schema:
    """A schema of ``names`` in the order of the table, dynamic columns after the fixed ones of their stage."""
    return pa.schema([field_for(name) for name in ordered(names)])


def ordered(names: Iterable[str]) -> list[str]:
    """``names`` in canonical order: by stage, then as in the table, dynamic columns first within their stage."""
    position = {name: index for index, name in enumerate(COLUMNS)}

    def rank(name: str) -> tuple[int, int, int, str]:
        stage = STAGES.index(column_for(name).stage)
        fixed = name in position
        return (stage, 1 if fixed else 0, position.get(name, 0), name)

    return sorted(set(names), key=rank)


def outlives(stage: str, *, rerun: str) -> bool:
    """Whether what ``stage`` wrote still holds once ``rerun`` has run again: what earlier stages wrote does; judges add
    to one another. Later stages' columns would describe other numbers.
    """
    before, after = STAGES.index(stage), STAGES.index(rerun)
    return before < after or (before == after and rerun == "judge")


def stage_of(names: Iterable[str]) -> str:
    """The furthest stage that a file with these columns has been through."""
    present = set(names)
    marks = {
        "advantage": ("advantage",),
        "returns": ("return",),
        "judge": ("judge_status", "belief_after", "kl", "implicit_reward", "safety_status"),
    }
    for stage, columns in marks.items():
        if present.intersection(columns):
            return stage
    return "rollout"
