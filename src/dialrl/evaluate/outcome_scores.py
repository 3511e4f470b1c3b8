"""Scores of dialogues whose outcome says how good they were (search): mean outcome with interval, endings, lengths.

For files without positions, where there is no sum of judge rewards. Not here: the sum (``dialogue_scores``).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dialrl.evaluate.config import DialogueConfig
from dialrl.evaluate.dialogue_scores import DialogueScores
from dialrl.evaluate.statistics import percentile_interval, scenario_bootstrap

OUTCOME_NEEDS = ("scenario_id", "outcome", "end_reason")
_MAY_USE = ("status", "reply_ids")


@dataclass
class OutcomeScores(DialogueScores):
    """Adds up tables; dialogues that broke or whose outcome is not known are counted and left out."""

    def _add_dialogue(self, rows: Mapping[str, list[Any]]) -> None:
        outcome = rows["outcome"][-1]
        if "status" in rows and rows["status"][-1] == "error":
            self.counts["broken_dialogues"] += 1
        elif outcome is None:
            self.counts["unjudged_dialogues"] += 1
        else:
            self.scenarios.append(rows["scenario_id"][0])
            self.total_D.append(float(outcome))
            self.turns_D.append(len(rows["turn"]))
            self.ending_D.append(str(rows["end_reason"][-1] or "unknown"))
            self.tokens += sum(len(ids or ()) for ids in rows.get("reply_ids", ()))

    def figures(self, config: DialogueConfig) -> dict[str, Any]:
        """``score`` (mean outcome) with its interval, turns, endings. Example: outcomes 1, 0, .5 -> 0.5."""
        values = np.column_stack([self.total_D, self.turns_D])
        drawn = scenario_bootstrap(values, self.scenarios, resamples=config.resamples, seed=config.seed)
        return {
            "score": float(np.mean(self.total_D)),
            "measure": "outcome",
            "mean_turns": float(np.mean(self.turns_D)),
            "reply_tokens_per_turn": self.tokens / max(sum(self.turns_D), 1),
            "intervals": {
                name: percentile_interval(drawn[:, column], config.confidence).to_json()
                for column, name in enumerate(("score", "mean_turns"))
            },
            "endings": dict(self.endings.most_common()),
        }


def outcome_columns(columns: list[str]) -> list[str]:
    """The columns to read: keys, those needed, those that are there of the ones that may be used."""
    return ["group_id", "sample", "turn", *OUTCOME_NEEDS, *(name for name in _MAY_USE if name in columns)]
