"""Counts and figures of ``dialrl returns``, collected table by table. Not here: how they are printed."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dialrl.ragged import Flags
from dialrl.returns.batch import TurnBatch
from dialrl.returns.channels import ChannelValues
from dialrl.returns.compute import Returns, Rewards
from dialrl.returns.config import ReturnsConfig


class Tally:
    """What the stage saw so far."""

    def __init__(self, channels: Sequence[str]) -> None:
        self._counts = dict.fromkeys(
            (
                "groups", "dialogues", "turns", "turns_after_stop", "turns_missing", "turns_filled",
                "filled_by_turn_mean", "filled_by_group_mean", "filled_by_file_mean", "dialogues_dropped",
                "dialogues_truncated",
            ),
            0,
        )  # fmt: skip
        self._channels = {name: {"known": 0, "not_applicable": 0, "missing": 0, "total": 0.0} for name in channels}
        self._reward_total = 0.0
        self._return_total = 0.0
        self._rewards = 0
        self._returns = 0
        self._ending_known = False

    def add(self, batch: TurnBatch, values: Mapping[str, ChannelValues], rewards: Rewards, returns: Returns) -> None:
        """Count one table of whole groups."""
        start = batch.layout.dialogue_start[:-1]
        filled = int((returns.kept_K & rewards.missing_K).sum())
        self._ending_known |= batch.has("truncated")
        added = {
            "groups": batch.layout.groups,
            "dialogues": batch.layout.dialogues,
            "turns": batch.rows,
            "turns_after_stop": int((~batch.counted).sum()),
            "turns_missing": int(rewards.missing_K.sum()),
            "turns_filled": filled,
            "filled_by_turn_mean": returns.by_turn,
            "filled_by_group_mean": returns.by_group,
            "filled_by_file_mean": min(returns.by_file, filled),
            "dialogues_dropped": int((~returns.kept_K[start] & batch.counted[start]).sum()),
            "dialogues_truncated": int(batch.truths("truncated")[batch.layout.last_row].sum()),
        }
        for name, amount in added.items():
            self._counts[name] += amount
        for name, channel in values.items():
            self._add_channel(name, channel, batch.counted)
        self._reward_total += float(np.nansum(rewards.reward_K))
        self._return_total += float(np.nansum(returns.return_K))
        self._rewards += int((~np.isnan(rewards.reward_K)).sum())
        self._returns += int((~np.isnan(returns.return_K)).sum())

    def _add_channel(self, name: str, channel: ChannelValues, counted_K: Flags) -> None:
        known_K = counted_K & ~np.isnan(channel.value_K)
        missing_K = counted_K & channel.missing_K
        entry = self._channels[name]
        entry["known"] += int(known_K.sum())
        entry["missing"] += int(missing_K.sum())
        entry["not_applicable"] += int((counted_K & ~known_K & ~missing_K).sum())
        entry["total"] += float(channel.value_K[known_K].sum())

    def counts(self) -> dict[str, int]:
        """Whole numbers, in the order they are printed."""
        return dict(self._counts)

    def figures(self, config: ReturnsConfig) -> dict[str, Any]:
        """Everything else: the settings that move the numbers, means, and each channel's statuses."""
        truncated = self._counts["dialogues_truncated"] / max(1, self._counts["dialogues"])
        return {
            "gamma": config.gamma,
            "weights": config.weights,
            "missing": config.missing,
            "until": config.until,
            "mean_reward": _ratio(self._reward_total, self._rewards),
            "mean_return": _ratio(self._return_total, self._returns),
            "truncated_share": truncated if self._ending_known else None,
            "channels": {name: _channel_figures(entry) for name, entry in self._channels.items()},
        }

    def warnings(self) -> tuple[str, ...]:
        """Sentences a user should read."""
        lines = []
        if self._counts["dialogues_dropped"]:
            lines.append(
                f"{self._counts['dialogues_dropped']} of {self._counts['dialogues']} dialogues were dropped: too many"
                " of their rewards are missing (see max_missing). They keep their rows and get no return."
            )
        if self._rewards == 0:
            lines.append("No turn has a reward: every one is missing. Check the judge's errors (judge_error).")
        return tuple(lines)


def _channel_figures(entry: Mapping[str, float]) -> dict[str, Any]:
    statuses: dict[str, Any] = {name: int(entry[name]) for name in ("known", "not_applicable", "missing")}
    return {**statuses, "mean": _ratio(entry["total"], int(entry["known"]))}


def _ratio(total: float, number: int) -> float | None:
    return total / number if number else None
