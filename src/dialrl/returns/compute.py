"""From channel values to rewards and returns: the missing-value rules and discounting, as pure functions.

Source: docs/credit.md 1. Not here: what a channel's values are (``channels``), reading and writing (``stage``).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from dialrl.ragged import Flags, Floats, Ints, discounted, fill_by_means
from dialrl.returns.channels import ChannelValues
from dialrl.trajectory.layout import Layout

Missing = Literal["fill", "drop-dialogue", "zero"]


@dataclass(frozen=True)
class Rewards:
    """The weighted sum of the channels: ``reward_K`` (NaN where an applicable one is missing or the turn counts not).

    ``missing_K``: counted turns without a reward; ``kept_K``: counted turns of dialogues that are not dropped.
    """

    reward_K: Floats
    missing_K: Flags
    kept_K: Flags

    @property
    def known_K(self) -> Flags:
        """Turns whose rewards make the means that fill others."""
        return self.kept_K & ~self.missing_K


@dataclass(frozen=True)
class Returns:
    """``filled_K`` and ``return_K``, NaN where the columns are null, and how many fills came from where."""

    filled_K: Floats
    return_K: Floats
    by_turn: int
    by_group: int
    by_file: int
    kept_K: Flags


def weighted_rewards(
    channels: Mapping[str, ChannelValues],
    weights: Mapping[str, float],
    layout: Layout,
    counted_K: Flags,
    missing: Missing,
    max_missing: float,
) -> Rewards:
    """Reward of each turn, and which dialogues are dropped because too much of them is missing.

    ``fill`` drops a dialogue with more than ``max_missing`` of its counted turns missing, ``drop-dialogue`` one with
    any, ``zero`` none.
    """
    reward_K = np.zeros(layout.rows)
    missing_K = np.zeros(layout.rows, dtype=np.bool_)
    for name, channel in channels.items():
        known_K = np.where(np.isnan(channel.value_K), 0.0, channel.value_K)
        known_K *= weights[name]
        reward_K += known_K
        missing_K |= channel.missing_K
    missing_K &= counted_K
    reward_K[missing_K | ~counted_K] = np.nan
    kept_K = counted_K
    if missing_K.any():
        dropped_D = _dropped(layout, missing_K, counted_K, missing, max_missing)
        kept_K = counted_K & ~dropped_D[layout.dialogue_of_row]
    return Rewards(reward_K, missing_K, kept_K)


def _dropped(layout: Layout, missing_K: Flags, counted_K: Flags, missing: Missing, max_missing: float) -> Flags:
    start = layout.dialogue_start[:-1]
    missing_D: Ints = np.add.reduceat(missing_K.astype(np.int64), start)
    if missing == "zero":
        return np.zeros(layout.dialogues, dtype=np.bool_)
    if missing == "drop-dialogue":
        return missing_D > 0
    counted_D: Ints = np.add.reduceat(counted_K.astype(np.int64), start)
    return missing_D > max_missing * counted_D + 1e-9


def filled_returns(
    rewards: Rewards, layout: Layout, gamma: float, missing: Missing, file_mean: Callable[[], float]
) -> Returns:
    """Fill what is missing and discount. ``file_mean`` is asked only when a group knows no reward at all.

    Example (docs/credit.md 1), gamma .85:
    (1.0, null, .8), (.3, .6, .9) -> G (2.0880, null, .8000), (1.46025, 1.3650, .9000).
    """
    if rewards.known_K.all():  # the usual case, without any copy
        return_K = discounted(rewards.reward_K, layout.dialogue_start, layout.turn, gamma)
        return Returns(rewards.reward_K, return_K, 0, 0, 0, rewards.kept_K)
    gaps_K = rewards.kept_K & rewards.missing_K
    base_K = np.where(rewards.kept_K & ~gaps_K, rewards.reward_K, 0.0)
    if not gaps_K.any() or missing == "zero":
        filled_K, by_turn, by_group, by_file = base_K, 0, 0, 0
    else:
        filled = fill_by_means(base_K, rewards.known_K, gaps_K, layout.group_start, layout.group_of_row, layout.turn)
        filled_K, by_turn, by_group, by_file = filled.value_K, filled.by_turn, filled.by_group, int(filled.open_K.sum())
        if by_file:
            filled_K[filled.open_K] = file_mean()
    kept_K = rewards.kept_K & ~np.isnan(filled_K)  # a file that knows no reward at all has nothing to fill with
    return_K = discounted(np.nan_to_num(filled_K), layout.dialogue_start, layout.turn, gamma)
    return_K[gaps_K | ~kept_K] = np.nan
    filled_K[~kept_K] = np.nan
    return Returns(filled_K, return_K, by_turn, by_group, by_file, kept_K)
