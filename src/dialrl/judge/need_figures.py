"""Mean gains over needs and their control, with standard errors over scenarios. Pure. Not here: who is asked."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dialrl.judge.belief_tasks import Row
from dialrl.judge.need_sets import NeedSet

_ERRORS = 1.96  # standard errors that a mean of pure chance stays within, nineteen times in twenty


@dataclass
class GainFigures:
    """Gathers dialogues; a scenario weighs as much as any other."""

    _gains: dict[str, dict[str, list[float]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))
    _believed: list[bool] = field(default_factory=list)
    _chance: list[float] = field(default_factory=list)

    def add(self, scenario: str, scored: Sequence[Row], needs: NeedSet) -> None:
        """Take one dialogue's rows."""
        for row in scored:
            _take(self._gains[scenario], "", row["belief_before"], row["belief_after"])
            _take(self._gains[scenario], "shuffled_", row["belief_before_shuffled"], row["belief_after_shuffled"])
        last = next((row["belief_alias"] for row in reversed(scored) if row["belief_alias"] is not None), None)
        if last is not None:
            self._believed.append(last == needs.candidates[needs.target])
            self._chance.append(1.0 / len(needs.candidates))

    def to_json(self) -> dict[str, Any]:
        """Mean gain a turn of log q and of q with standard errors, the same shuffled, and how often the listener ends
        up right beside what chance would give.
        """
        if not self._believed:
            return {}
        return {
            "gain": {"log": self._mean("log"), "probability": self._mean("probability")},
            "gain_shuffled": {"log": self._mean("shuffled_log"), "probability": self._mean("shuffled_probability")},
            "need_believed_in_the_end": float(np.mean(self._believed)),
            "by_chance": float(np.mean(self._chance)),
        }

    def warnings(self) -> tuple[str, ...]:
        """The control must not be above zero by more than chance."""
        control = self._mean("shuffled_probability")
        if control is None or control["mean"] <= _ERRORS * control["standard_error"]:
            return ()
        return (
            f"The control gains too: with needs permuted among dialogues q rises by {control['mean']:.4f} a turn. What"
            " is credited is not the need.",
        )

    def _mean(self, name: str) -> dict[str, float] | None:
        """Mean of the scenarios' means and its standard error; None where no scenario has any."""
        mean_G = np.array([np.mean(gains[name]) for gains in self._gains.values() if gains.get(name)])
        if not len(mean_G):
            return None
        error = float(mean_G.std(ddof=1) / np.sqrt(len(mean_G))) if len(mean_G) > 1 else 0.0
        return {"mean": float(mean_G.mean()), "standard_error": error}


def _take(gains: dict[str, list[float]], prefix: str, before: float | None, after: float | None) -> None:
    if before is not None and after is not None:
        gains[f"{prefix}log"].append(after - before)
        gains[f"{prefix}probability"].append(float(np.exp(after) - np.exp(before)))
