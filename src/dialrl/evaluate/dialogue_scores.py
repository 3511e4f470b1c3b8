"""Scores of judged dialogues: total reward with interval, reward by turn, endings, lengths; one array entry a dialogue.

Total reward J of a dialogue = d(P_0) - d(P_T), the undiscounted sum of the channel ``incremental-distance`` over the
turns that count. Pure but for reading the tables it is given. Not here: rolling dialogues out.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dialrl.evaluate.config import DialogueConfig
from dialrl.evaluate.statistics import percentile_interval, scenario_bootstrap, wilson_interval
from dialrl.state.model import zone_distance
from dialrl.state.rules import StopRules
from dialrl.state.stop import stop_turn
from dialrl.trajectory.endings import STOP_RULE_REASONS
from dialrl.trajectory.layout import Layout

Floats = npt.NDArray[np.float64]
NEEDS = ("scenario_id", "deficit", "position", "judge_status", "end_reason")
MAY_USE = ("increment", "stop_turn", "status", "reply_ids")


@dataclass
class DialogueScores:
    """Adds up tables of whole groups; dialogues that broke or have no judgement at all are counted and left out."""

    until: str
    rules: StopRules = field(default_factory=StopRules)
    scenarios: list[str] = field(default_factory=list)
    total_D: list[float] = field(default_factory=list)
    turns_D: list[int] = field(default_factory=list)
    ending_D: list[str] = field(default_factory=list)
    tokens: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    _by_turn: dict[int, list[float]] = field(default_factory=dict)

    def add(self, table: pa.Table) -> None:
        """Take the dialogues of ``table`` (columns: keys, NEEDS, and those of MAY_USE that there are)."""
        layout = Layout.of(table)
        columns = {name: table[name].to_pylist() for name in table.column_names}
        for start, end in zip(layout.dialogue_start[:-1], layout.dialogue_start[1:], strict=True):
            self._add_dialogue({name: values[start:end] for name, values in columns.items()})

    def _add_dialogue(self, rows: Mapping[str, list[Any]]) -> None:
        counted = self._counted(rows)
        missing = sum(status == "missing" for status in rows["judge_status"][:counted])
        self.counts["missing_judgements"] += missing
        if "status" in rows and rows["status"][-1] == "error":
            self.counts["broken_dialogues"] += 1
        elif missing == counted:
            self.counts["unjudged_dialogues"] += 1
        else:
            self._score(rows, counted)

    def _counted(self, rows: Mapping[str, list[Any]]) -> int:
        stop = rows["stop_turn"][0] if self.until == "stop" and "stop_turn" in rows else None
        return len(rows["turn"]) if stop is None else sum(turn <= stop for turn in rows["turn"])

    def _score(self, rows: Mapping[str, list[Any]], counted: int) -> None:
        distance = zone_distance([rows["deficit"][0], *rows["position"][:counted]])
        for turn, gain in zip(rows["turn"], -np.diff(distance), strict=False):
            self._by_turn.setdefault(turn, []).append(float(gain))
        self.scenarios.append(rows["scenario_id"][0])
        self.total_D.append(float(distance[0] - distance[-1]))
        self.turns_D.append(counted)
        self.ending_D.append(self._ending(rows, counted))
        self.tokens += sum(len(ids or ()) for ids in rows.get("reply_ids", ())[:counted])

    def _ending(self, rows: Mapping[str, list[Any]], counted: int) -> str:
        """Why the counted dialogue ended: by a stop rule that was replayed over it, or as the rollout says."""
        reason = rows["end_reason"][-1]
        replayed = self.until == "stop" and "increment" in rows and "stop_turn" in rows
        if reason in STOP_RULE_REASONS or not replayed or rows["stop_turn"][0] is None:
            return str(reason or "unknown")
        known = {name: rows[name][:counted] for name in ("position", "increment")}
        return stop_turn(known["position"], rows["deficit"][0], known["increment"], self.rules).reason or "stop_rule"

    @property
    def endings(self) -> Counter[str]:
        """How often each ending came."""
        return Counter(self.ending_D)

    def figures(self, config: DialogueConfig) -> dict[str, Any]:
        """``score`` (mean J) with its interval, success rate (Wilson), turns, endings, reward by turn."""
        drawn = scenario_bootstrap(
            np.column_stack([self.total_D, self.turns_D]),
            self.scenarios,
            resamples=config.resamples,
            seed=config.seed,
        )
        successes, dialogues = self.endings["success"], len(self.total_D)
        return {
            "score": float(np.mean(self.total_D)),
            "success_rate": successes / dialogues,
            "mean_turns": float(np.mean(self.turns_D)),
            "reply_tokens_per_turn": self.tokens / max(sum(self.turns_D), 1),
            "intervals": {
                "score": percentile_interval(drawn[:, 0], config.confidence).to_json(),
                "success_rate": wilson_interval(successes, dialogues, config.confidence).to_json(),
                "mean_turns": percentile_interval(drawn[:, 1], config.confidence).to_json(),
            },
            "reward_by_turn": {
                str(turn): {"mean": float(np.mean(gains)), "dialogues": len(gains)}
                for turn, gains in sorted(self._by_turn.items())
            },
            "endings": dict(self.endings.most_common()),
        }


def share_interval(interval: Mapping[str, float], share: Any) -> dict[str, float]:
    """An interval of J as one of share (share is linear in J)."""
    return {name: share(value) for name, value in interval.items()}


def numbered(columns: Sequence[str]) -> list[str]:
    """The columns to read: keys, those needed, those that are there of the ones that may be used."""
    return ["group_id", "sample", "turn", *NEEDS, *(name for name in MAY_USE if name in columns)]
