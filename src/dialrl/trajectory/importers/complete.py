"""Completes one logged dialogue: what the file format asks for and the log need not say, from what it does say.

Keys, endings, the deficit on every row, and positions from increments. Everything here is checked: a log that
contradicts itself is refused with line and key. Not here: reading lines (``json_lines``), types (``json_values``).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dialrl.config import nearest
from dialrl.errors import InputError
from dialrl.trajectory.endings import END_REASONS, TERMINATED_REASONS, TRUNCATED_REASONS
from dialrl.trajectory.schema import COLUMNS

LAST_ONLY = tuple(name for name, column in COLUMNS.items() if column.rows == "last")
VECTORS = ("deficit", "increment", "position")
JUDGE_STATUSES = ("ok", "repaired", "missing")


@dataclass(frozen=True)
class Turn:
    """One converted line: ``row`` holds column values, ``line`` is where it came from."""

    line: int
    row: dict[str, Any]


@dataclass
class Completer:
    """``columns`` are those the file has, over all its lines; ``path`` and lines name places in errors."""

    path: Path
    columns: frozenset[str]
    allow_gaps: bool
    axes: int | None = None

    @property
    def judged(self) -> bool:
        """The log carries judgements."""
        return bool(self.columns & {"increment", "position", "grades"})

    @property
    def output_columns(self) -> tuple[str, ...]:
        """All columns of the file to write."""
        own = ["dialogue_id", "scenario_id", "environment", "status"]
        if "end_reason" in self.columns:
            own += ["terminated", "truncated"]
        if self.judged:
            own += ["judge_status"]
        if self.walks:
            own += ["position", "position_estimated"]
        return tuple(dict.fromkeys([*self.columns, *own]))

    @property
    def _verdict(self) -> tuple[str, ...]:
        """The columns that tell whether a turn was judged: the increment, where the log has it."""
        return ("increment",) if "increment" in self.columns else ("position", "grades")

    @property
    def walks(self) -> bool:
        """Positions can be computed, or carried over a missing one."""
        return "deficit" in self.columns and bool(self.columns & {"increment", "position"})

    def complete(self, turns: Sequence[Turn]) -> list[dict[str, Any]]:
        """The rows of one dialogue, given in order of turn."""
        self._check_turns(turns)
        self._check_last_only(turns)
        for turn in turns:
            self._check_row(turn)
        self._spread(turns, "deficit")
        self._spread(turns, "stop_turn")
        broken = turns[-1].row.get("end_reason") == "error"
        for turn in turns:
            self._default_keys(turn, status="error" if broken else "ok")
        if self.judged:
            self._judge(turns)
        self._end(turns[-1])
        return [turn.row for turn in turns]

    def fault(self, turn: Turn, key: str, problem: str) -> InputError:
        return InputError(f"'{self.path}', line {turn.line}, key '{key}': {problem}.")

    def _check_turns(self, turns: Sequence[Turn]) -> None:
        numbers = [turn.row["turn"] for turn in turns]
        if self.allow_gaps or numbers == list(range(len(numbers))):
            return
        absent = next(number for number in range(len(numbers) + 1) if number not in numbers)
        after = next(turn for turn in turns if turn.row["turn"] > absent)
        name = f"{after.row['group_id']}/{after.row['sample']}"
        raise self.fault(
            after,
            "turn",
            f"dialogue '{name}' goes on to turn {after.row['turn']} but turn {absent} is not in the file; expected"
            " 0, 1, 2 ... (--allow-gaps takes it as it is and keeps the numbers)",
        )

    def _check_last_only(self, turns: Sequence[Turn]) -> None:
        for turn in turns[:-1]:
            for key in LAST_ONLY:
                if turn.row.get(key) is not None:
                    last = turns[-1].row["turn"]
                    raise self.fault(
                        turn, key, f"stands on turn {turn.row['turn']}; expected on the last turn ({last}) only"
                    )

    def _check_row(self, turn: Turn) -> None:
        for key in VECTORS:
            vector = turn.row.get(key)
            if vector is None:
                continue
            self.axes = len(vector) if self.axes is None else self.axes
            if len(vector) != self.axes or not vector:
                raise self.fault(
                    turn, key, f"has {len(vector)} axes; expected {self.axes or 'at least 1'}, as before it"
                )
        self._check_ids(turn)
        self._check_choice(turn, "end_reason", END_REASONS)
        self._check_choice(turn, "judge_status", JUDGE_STATUSES)
        if turn.row.get("judge_status") == "missing" and turn.row.get("increment") is not None:
            raise self.fault(turn, "increment", "is known although judge_status is 'missing'; expected null")

    def _check_ids(self, turn: Turn) -> None:
        ids, logprobs = turn.row.get("reply_ids"), turn.row.get("reply_logprobs")
        if logprobs is not None and (ids is None or len(ids) != len(logprobs)):
            got = "no reply_ids" if ids is None else f"{len(ids)} reply_ids"
            raise self.fault(turn, "reply_logprobs", f"has {len(logprobs)} entries for {got}; expected one an id")

    def _check_choice(self, turn: Turn, key: str, known: Sequence[str]) -> None:
        value = turn.row.get(key)
        if value is not None and value not in known:
            raise self.fault(turn, key, f"got '{value}'; expected one of {', '.join(known)}.{nearest(value, known)}")

    def _spread(self, turns: Sequence[Turn], key: str) -> None:
        """A value of the whole dialogue may stand on one row or on all; all rows get it."""
        known = [turn for turn in turns if turn.row.get(key) is not None]
        for turn in known[1:]:
            if turn.row[key] != known[0].row[key]:
                raise self.fault(
                    turn,
                    key,
                    f"got {turn.row[key]}, but {known[0].row[key]} in line {known[0].line}; expected one a dialogue",
                )
        for turn in turns:
            if known:
                turn.row[key] = known[0].row[key]

    def _default_keys(self, turn: Turn, *, status: str) -> None:
        row = turn.row
        dialogue = f"{row['group_id']}/{row['sample']}"
        if row.get("dialogue_id") not in (None, dialogue):
            raise self.fault(turn, "dialogue_id", f"got '{row['dialogue_id']}'; expected group_id/sample, '{dialogue}'")
        row["dialogue_id"] = dialogue
        for key, value in (("scenario_id", row["group_id"]), ("environment", "import"), ("status", status)):
            if row.get(key) is None:
                row[key] = value

    def _judge(self, turns: Sequence[Turn]) -> None:
        """judge_status where the log does not say; positions from the deficit and the increments so far."""
        position = turns[0].row.get("deficit")
        for turn in turns:
            row = turn.row
            known = any(row.get(key) is not None for key in self._verdict)
            if row.get("judge_status") is None:
                row["judge_status"] = "ok" if known else "missing"
            if position is None or not self.walks:
                continue
            given = row.get("position")
            position = _moved(position, row.get("increment")) if given is None else given
            row["position"] = list(position)
            if row.get("position_estimated") is None:
                row["position_estimated"] = row["judge_status"] == "missing"

    def _end(self, last: Turn) -> None:
        reason = last.row.get("end_reason")
        if reason is None:
            return
        for key, reasons in (("terminated", TERMINATED_REASONS), ("truncated", TRUNCATED_REASONS)):
            expected = reason in reasons
            if last.row.get(key) not in (None, expected):
                raise self.fault(last, key, f"got {last.row[key]}; expected {expected} for end_reason '{reason}'")
            last.row[key] = expected


def _moved(position: Sequence[float], increment: Sequence[float] | None) -> Sequence[float]:
    """The position after a turn; a missing judgement carries it forward."""
    if increment is None:
        return position
    return [here + change for here, change in zip(position, increment, strict=True)]
