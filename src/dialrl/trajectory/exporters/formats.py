"""The formats of ``dialrl export``: what one dialogue or one group becomes. Not here: choosing and writing.

``trl`` is TRL's conversational prompt-completion format, ``sft`` its (and verl's) ``messages`` format, ``dpo`` its
conversational preference format, ``verl`` the prompts of verl's RL data set.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from dialrl.trajectory.exporters.chat import ChatTurn, Row
from dialrl.trajectory.exporters.preferences import Preference

Example = dict[str, Any]
_CHAT = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
VERL_SCHEMA = pa.schema(
    [
        ("data_source", pa.string()),
        ("prompt", _CHAT),
        ("ability", pa.string()),
        ("reward_model", pa.struct([("style", pa.string()), ("ground_truth", pa.string())])),
        (
            "extra_info",
            pa.struct(
                [
                    ("split", pa.string()),
                    ("index", pa.int64()),
                    ("group_id", pa.string()),
                    ("scenario_id", pa.string()),
                    ("turn", pa.int32()),
                ]
            ),
        ),
    ]
)


def sft_example(turns: Sequence[ChatTurn]) -> Example:
    """A whole dialogue, ending with its last reply."""
    last = turns[-1]
    return {"messages": [*last.context, last.reply], "dialogue_id": dialogue_id(last.row)}


def trl_examples(turns: Sequence[ChatTurn]) -> Iterator[Example]:
    """One example a turn, with the numbers the file has of it."""
    for turn in turns:
        numbers: Example = {name: turn.row[name] for name in ("reward", "return", "advantage") if name in turn.row}
        place = {"dialogue_id": dialogue_id(turn.row), "turn": turn.row["turn"]}
        yield {"prompt": list(turn.context), "completion": [turn.reply], **place, **numbers}


def verl_examples(dialogues: Sequence[Sequence[ChatTurn]], split: str, first_index: int) -> Iterator[Example]:
    """One prompt a distinct context of the group; the reward model's ground truth is the scenario."""
    seen: set[object] = set()
    for turn in (turn for turns in dialogues for turn in turns):
        if turn.context_key not in seen:
            place = first_index + len(seen)
            seen.add(turn.context_key)
            yield _verl_example(turn, split, place)


def _verl_example(turn: ChatTurn, split: str, index: int) -> Example:
    row = turn.row
    scenario = row.get("scenario_id") or row["group_id"]
    return {
        "data_source": f"dialrl/{row.get('environment') or 'import'}",
        "prompt": list(turn.context),
        "ability": "dialogue",
        "reward_model": {"style": "rule", "ground_truth": scenario},
        "extra_info": {
            "split": split,
            "index": index,
            "group_id": row["group_id"],
            "scenario_id": scenario,
            "turn": row["turn"],
        },
    }


def dpo_example(pair: Preference) -> Example:
    """One preference pair with what each side is worth and where it comes from."""
    chosen, rejected = pair.chosen.turn, pair.rejected.turn
    return {
        "prompt": list(chosen.context),
        "chosen": [chosen.reply],
        "rejected": [rejected.reply],
        "turn": chosen.row["turn"],
        "chosen_dialogue": dialogue_id(chosen.row),
        "rejected_dialogue": dialogue_id(rejected.row),
        "chosen_worth": pair.chosen.worth,
        "rejected_worth": pair.rejected.worth,
    }


def dialogue_id(row: Row) -> str:
    """group_id/sample."""
    return f"{row['group_id']}/{row['sample']}"
