"""``dialrl evaluate sage``: the sentient-agent benchmark from conversations, their emotions checked turn by turn.

Score = mean final emotion; success = conversations at 100 or above, failure = those below 10. With the rules of RLVER
the score is 100 times its reward, max(0, final / 100). Not here: the rules (``dialrl.environment.sage``), holding the
conversations (``sage_live``).
"""

import itertools
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dialrl.environment.sage.rules import FAILURE, RULES, SUCCESS
from dialrl.errors import FailureThresholdError, InputError
from dialrl.evaluate.answer_store import FAILED, failure_warning, stored_rows
from dialrl.evaluate.benchmark_config import SageConfig
from dialrl.evaluate.item_results import ItemResults
from dialrl.evaluate.sage_conversations import (
    Conversation,
    band,
    load_conversations,
    load_profile_ids,
    read_conversations,
)
from dialrl.evaluate.statistics import percentile_interval, scenario_bootstrap, wilson_interval
from dialrl.evaluate.stored import Stored
from dialrl.summary import StageSummary

COLUMNS = [
    ("final_emotion", pa.float64()),
    ("band", pa.string()),
    ("ending", pa.string()),
    ("replies", pa.int64()),
    ("faults", pa.list_(pa.string())),
    ("conversation", pa.string()),  # JSON, as SAGE publishes it
    ("error", pa.string()),
]
LISTED_FAULTS = 10


def evaluate_sage(
    answers: Path,
    questions: Path | None = None,
    config: SageConfig | None = None,
    *,
    output: Path | None = None,
    overwrite: bool = False,
) -> StageSummary:
    """Score stored conversations; ``questions`` are the profiles they should be about.

    Conversations that break the rules of the emotion count as they are stored; every break is counted and the first
    are listed. Raises InputError naming file, line and field for what is not as the benchmark writes it.
    """
    config = config or SageConfig()
    origin: Mapping[str, Any] = {}
    if answers.suffix == ".parquet":
        rows, made = stored_rows(answers, "sage")
        config = config.updated(rules=made["options"]["rules"])
        conversations = read_conversations(_kept(rows, answers), RULES[config.rules])
        origin = {"policy": made["policy"]}
    else:
        conversations = load_conversations(answers, RULES[config.rules])
    absent = 0 if questions is None else _check_profiles(answers, conversations, load_profile_ids(questions))
    inputs = [answers, *([] if questions is None else [questions])]
    held = conversations[: config.limit]
    return score_conversations(held, inputs, config, absent=absent, output=output, overwrite=overwrite, origin=origin)


def _kept(rows: Sequence[Mapping[str, Any]], place: Path) -> Iterator[Stored]:
    """The conversations in a results file; a row is a line."""
    for number, row in enumerate(rows, start=1):
        if row["conversation"] is not None:
            yield Stored(place, row["conversation"], json.loads(row["conversation"]), number)


def score_conversations(
    held: Sequence[Conversation],
    inputs: Sequence[Path],
    config: SageConfig,
    *,
    absent: int,
    output: Path | None,
    overwrite: bool,
    origin: Mapping[str, Any],
    failed: Mapping[str, str] | None = None,
) -> StageSummary:
    """The summary of conversations, and the results file if there is to be one; ``failed``: profile to error."""
    failed = failed or {}
    if not held:
        raise FailureThresholdError(f"No conversation came to an end: {'; '.join(sorted(set(failed.values())))[:300]}")
    if output is not None:
        rows = [*(_row(conversation, config) for conversation in held), *itertools.starmap(_failed_row, failed.items())]
        ItemResults("sage", COLUMNS, rows, origin).write(output, inputs, config, overwrite=overwrite)
    counts = _counts(held, absent) | ({"failed_conversations": len(failed)} if failed else {})
    warnings = (*failure_warning(len(failed)), *_warnings(held, counts, config))
    return StageSummary("evaluate sage", output, counts, _figures(held, config), warnings)


def _failed_row(key: str, error: str) -> dict[str, Any]:
    return {"scenario_id": key, "item": key, "status": FAILED, "error": error}


def _check_profiles(answers: Path, conversations: Sequence[Conversation], profiles: Sequence[str]) -> int:
    """Number of profiles without a conversation; a conversation about none of them is refused."""
    known = set(profiles)
    for one in conversations:
        if one.key not in known:
            raise InputError(
                f"'{answers}', line {one.line}, field 'id': '{one.key}' is none of the {len(known)} profiles given."
            )
    return len(known) - len(conversations)


def _score(conversation: Conversation, config: SageConfig) -> float:
    return max(0.0, conversation.final) if config.rules == "rlver" else conversation.final


def _row(conversation: Conversation, config: SageConfig) -> dict[str, Any]:
    return {
        "scenario_id": conversation.key,
        "item": conversation.key,
        "score": _score(conversation, config),
        "status": "scored",
        "final_emotion": conversation.final,
        "band": band(conversation.final),
        "ending": conversation.ending,
        "replies": conversation.replies,
        "faults": list(conversation.faults),
        "conversation": conversation.text,
    }


def _figures(held: Sequence[Conversation], config: SageConfig) -> dict[str, Any]:
    scores = np.array([_score(one, config) for one in held])
    success, failure = (sum(one.final >= SUCCESS for one in held), sum(one.final < FAILURE for one in held))
    drawn = scenario_bootstrap(scores[:, None], [one.key for one in held], resamples=config.resamples, seed=config.seed)
    bands, endings = Counter(band(one.final) for one in held), Counter(one.ending for one in held)
    faults = [fault for one in held for fault in one.faults]
    return {
        "score": float(scores.mean()),
        "success": success,
        "failure": failure,
        "mean_replies": sum(one.replies for one in held) / len(held),
        "intervals": {
            "score": percentile_interval(drawn[:, 0], config.confidence).to_json(),
            "success_rate": wilson_interval(success, len(held), config.confidence).to_json(),
            "failure_rate": wilson_interval(failure, len(held), config.confidence).to_json(),
        },
        "bands": {name: bands[name] for name in "SABCF"},
        "endings": dict.fromkeys(("success", "failure", "farewell", "turn_limit"), 0) | dict(endings),
        "emotion_by_turn": _by_turn(held),
        "first_faults": faults[:LISTED_FAULTS],
        "settings": _settings(config),
    }


def _by_turn(held: Sequence[Conversation]) -> dict[str, dict[str, Any]]:
    """Mean emotion after each line of the user, over the conversations that reach it."""
    longest = max(len(one.emotion_K) for one in held)
    by_turn = [[one.emotion_K[turn] for one in held if turn < len(one.emotion_K)] for turn in range(longest)]
    return {
        str(turn): {"mean": float(np.mean(known)), "conversations": len(known)} for turn, known in enumerate(by_turn)
    }


def _settings(config: SageConfig) -> dict[str, Any]:
    rules = RULES[config.rules]
    return {
        "rules": config.rules,
        "starts_at": rules.start,
        "largest_change": rules.largest_change,
        "most_user_turns": rules.most_turns,
        "limit": config.limit,
        "resamples": config.resamples,
        "seed": config.seed,
    }


def _counts(held: Sequence[Conversation], absent: int) -> dict[str, int]:
    arithmetic = sum(one.arithmetic_faults for one in held)
    return {
        "conversations": len(held),
        "user_turns": sum(len(one.emotion_K) for one in held),
        "replies": sum(one.replies for one in held),
        "arithmetic_mismatches": arithmetic,
        "other_faults": sum(len(one.faults) for one in held) - arithmetic,
        "profiles_without_conversation": absent,
    }


def _warnings(held: Sequence[Conversation], counts: dict[str, int], config: SageConfig) -> tuple[str, ...]:
    found = []
    if counts["arithmetic_mismatches"] or counts["other_faults"]:
        broken = sum(bool(one.faults) for one in held)
        found.append(
            f"{broken} of {len(held)} conversations break the rules '{config.rules}'; they count as they are stored"
            " (first_faults)."
        )
    if counts["profiles_without_conversation"]:
        found.append(f"{counts['profiles_without_conversation']} profiles have no conversation: they are in no mean.")
    if config.limit is not None:
        found.append(f"Only {len(held)} conversations were scored: this is no SAGE score.")
    return tuple(found)
