"""Dialogues as the page holds them: short keys, absent where null, numbers rounded to what is shown.

    {"i": id, "g": group, "s": sample, "d": deficit, "e": end reason, "o": outcome, "t": [turns], "f": final messages}
    turn: {"n": turn, "m": [[role, text]], "r": reply, "w": reward, "v": return, "a": advantage, "x": {term: value},
           "p": position, "l": [[indicator, level, evidence, reasoning]], "k": ids, "q": log-probs, "c": context ids}

Model text goes through as it is: it travels as base64 and becomes text nodes only. Not here: the page.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dialrl.report.config import ReportConfig
from dialrl.report.rewards import dialogue_gains
from dialrl.report.sources import DialogueSet
from dialrl.trajectory.rows import table_to_dialogues

Row = Mapping[str, Any]
_BATCH_ROWS = 8192
_NEVER_SHOWN = (
    "dialogue_id", "seed", "policy_digest", "usage", "grade_samples", "reward_filled", "environment", "segment", "kl",
    "final_ids", "terminated", "truncated", "increment", "policy_step", "belief_before", "belief_after", "belief_alias",
    "implicit_log_ratio",
)  # fmt: skip


class Budget:
    """How many token ids and how many characters of judges' words may still go into the page."""

    def __init__(self, config: ReportConfig) -> None:
        self.tokens, self.quotes = config.tokens, config.quotes
        self.seen: set[int] = set()
        self.without_tokens = self.without_quotes = 0

    def takes_tokens(self, rows: Sequence[Row]) -> bool:
        """Whether this dialogue's ids go in; counts them if so."""
        needed = sum(len(row.get("reply_ids") or ()) + len(row.get("prompt_ids") or ()) for row in rows)
        fits = needed <= self.tokens
        self.tokens -= needed if fits else 0
        self.without_tokens += not fits
        return fits

    def takes_quotes(self, rows: Sequence[Row]) -> bool:
        """Whether this dialogue's evidence and reasoning go in; counts them if so."""
        grades = [grade for row in rows for grade in row.get("grades") or ()]
        needed = sum(len(grade["evidence"] or "") + len(grade["reasoning"] or "") for grade in grades)
        fits = needed <= self.quotes
        self.quotes -= needed if fits else 0
        self.without_quotes += not fits
        return fits


def dialogues_of(given: DialogueSet, config: ReportConfig, budget: Budget) -> Iterator[dict[str, Any]]:
    """The first dialogues of a file, whole groups, until there are ``config.dialogues``."""
    names = [name for name in given.source.names if name not in _NEVER_SHOWN and not name.startswith("reward_")]
    shown, last_group = 0, None
    for table in given.source.groups(names, _BATCH_ROWS):
        for rows in table_to_dialogues(table):
            if shown >= config.dialogues and rows[0]["group_id"] != last_group:
                return
            shown, last_group = shown + 1, rows[0]["group_id"]
            yield _dialogue(rows, budget)


def _dialogue(rows: Sequence[Row], budget: Budget) -> dict[str, Any]:
    first, last = rows[0], rows[-1]
    gains = None if "reward" in first else dialogue_gains(rows)
    with_tokens, with_quotes = budget.takes_tokens(rows), budget.takes_quotes(rows)
    turns = []
    for index, row in enumerate(rows):
        reward = row.get("reward") if gains is None else float(gains[index])
        turns.append(_turn(row, reward, budget if with_tokens else None, with_quotes=with_quotes))
    return _present(
        {
            "i": f"{first['group_id']}/{first['sample']}",
            "g": first["group_id"],
            "s": first["sample"],
            "d": first.get("deficit"),
            "e": last.get("end_reason"),
            "o": _rounded(last.get("outcome")),
            "er": last.get("error"),
            "st": first.get("stop_turn"),
            "t": turns,
            "f": _messages(last.get("final_messages")),
        }
    )


def _turn(row: Row, reward: float | None, budget: Budget | None, *, with_quotes: bool) -> dict[str, Any]:
    terms = {
        name.removeprefix("advantage_"): _rounded(value)
        for name, value in row.items()
        if name.startswith("advantage_") and value is not None
    }
    return _present(
        {
            "n": row["turn"],
            "m": _messages(row.get("messages")),
            "r": row.get("reply"),
            "h": row.get("thinking"),
            "w": _rounded(reward),
            "v": _rounded(row.get("return")),
            "a": _rounded(row.get("advantage")),
            "x": terms,
            "p": row.get("position"),
            "pe": 1 if row.get("position_estimated") else None,
            "l": _grades(row.get("grades"), with_quotes=with_quotes),
            "js": row.get("judge_status") if row.get("judge_status") != "ok" else None,
            "je": row.get("judge_error"),
            "fl": row.get("flags"),
            "fr": row.get("finish_reason") if row.get("finish_reason") != "stop" else None,
            "di": _director(row.get("director")),
            "nk": len(row.get("reply_ids") or ()) or None,
            "nc": len(row.get("prompt_ids") or ()) or None,
            **({} if budget is None else _tokens(row, budget)),
        }
    )


def _tokens(row: Row, budget: Budget) -> dict[str, Any]:
    ids, context = row.get("reply_ids") or (), row.get("prompt_ids") or ()
    budget.seen.update(ids, context)
    logprobs = row.get("reply_logprobs") or ()
    return {"k": list(ids), "c": list(context), "q": [round(value, 2) for value in logprobs]}


def _messages(messages: Any) -> list[list[str]]:
    return [[m["name"] or m["role"], m["content"] or ""] for m in messages or ()]


def _grades(grades: Any, *, with_quotes: bool) -> list[list[Any]]:
    """Levels with a word on them, or other than 0; evidence and reasoning cut off where there are none."""
    kept = [g for g in grades or () if g["level"] or g["evidence"]]
    if not with_quotes:
        return [[g["indicator"], g["level"]] for g in kept]
    rows = [[g["indicator"], g["level"], g["evidence"], g["reasoning"]] for g in kept]
    return [row if row[3] else row[:3] if row[2] else row[:2] for row in rows]


def _director(director: Any) -> str | None:
    if not director:
        return None
    return " ".join(filter(None, (director["tool"], director["argument"], director["guidance"]))) or None


def _rounded(value: float | None) -> float | None:
    """Four significant digits; what is not known stays out."""
    return None if value is None or value != value else float(f"{value:.4g}")


def _present(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None and value != [] and value != {}}
