"""The signals of a table of whole groups: rewards and channels with their missing values filled.

Source: docs/credit.md 1, "Missing in a return". Not here: pools and terms.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dialrl.advantage.anchors import state_pools
from dialrl.advantage.resolve import Origin
from dialrl.ragged import Flags, Floats, Scattered, fill_by_means
from dialrl.trajectory.layout import Layout, floats


@dataclass(frozen=True)
class Signal:
    """One value a turn: ``value_K`` (filled where missing, 0 where there is none).

    ``member_K``: turns whose value is known, which alone form pools. ``stands_K``: turns that have a value, known or
    filled. ``lost_D``: dialogues whose own value (the outcome) is missing, so that they are in no dialogue pool.
    """

    value_K: Floats
    member_K: Flags
    stands_K: Flags
    lost_D: Flags


class SignalBatch:
    """K turns of D whole dialogues, with what ``returns`` wrote. ``file_mean`` gives a channel's mean over the file."""

    def __init__(self, table: pa.Table, origin: Origin, file_mean: Callable[[str], float]) -> None:
        self.table = table
        self.layout = Layout.of(table)
        self._origin = origin
        self._file_mean = file_mean
        self._signals: dict[str, Signal] = {}
        self._states: dict[str, Scattered] = {}

    def numbers(self, name: str) -> Floats:
        """A number column, (K,), null as NaN."""
        return floats(self.table[name])

    @cached_property
    def reward_K(self) -> Floats:
        return self.numbers("reward")

    @cached_property
    def filled_K(self) -> Floats:
        return self.numbers("reward_filled")

    @cached_property
    def live_K(self) -> Flags:
        """Turns that count, of dialogues that were not dropped."""
        return ~np.isnan(self.filled_K)

    @cached_property
    def credited_K(self) -> Flags:
        """Turns that get an advantage: live, and with a reward of their own."""
        return self.live_K & ~np.isnan(self.reward_K)

    def signal(self, name: str) -> Signal:
        """``reward``, or channels joined by ``+``."""
        if name not in self._signals:
            self._signals[name] = self._reward() if name == "reward" else self._channels(name)
        return self._signals[name]

    def state_pools(self, anchor: str) -> Scattered:
        """Pools of the turns that were taken in the same state of their group."""
        if anchor not in self._states:
            self._states[anchor] = state_pools(self.table, self.layout, anchor)
        return self._states[anchor]

    def known_total(self, name: str) -> tuple[float, int]:
        """Sum and number of the known values of a signal: what a file's mean is made of."""
        value_K, stands_K, missing_K = self._raw(name.split("+"))
        known_K = stands_K & ~missing_K
        return float(value_K[known_K].sum()), int(known_K.sum())

    def _reward(self) -> Signal:
        lost_D = np.zeros(self.layout.dialogues, dtype=np.bool_)
        for channel in self._origin.per_dialogue:
            lost_D |= self._lost(self._status(channel, "missing") & self.live_K)
        value_K = self.filled_K if self.live_K.all() else np.where(self.live_K, self.filled_K, 0.0)
        return Signal(value_K, self.credited_K, self.live_K, lost_D)

    def _channels(self, name: str) -> Signal:
        names = name.split("+")
        value_K, stands_K, missing_K = self._raw(names)
        member_K = stands_K & ~missing_K
        lost_D = np.zeros(self.layout.dialogues, dtype=np.bool_)
        if all(part in self._origin.per_dialogue for part in names):
            lost_D = self._lost(missing_K)
        if missing_K.any() and self._origin.missing == "fill":
            value_K = self._filled(name, value_K, member_K, missing_K)
        return Signal(value_K, member_K, stands_K, lost_D)

    def _raw(self, names: list[str]) -> tuple[Floats, Flags, Flags]:
        """Weighted sum of the known values (0 where none), where a value stands or should, and where one is missing."""
        value_K = np.zeros(self.layout.rows)
        stands_K = np.zeros(self.layout.rows, dtype=np.bool_)
        missing_K = np.zeros(self.layout.rows, dtype=np.bool_)
        for name in names:
            channel_K = self.numbers(f"reward_{name}")
            absent_K = self._status(name, "missing")
            value_K += self._origin.weights[name] * np.nan_to_num(channel_K)
            missing_K |= absent_K
            stands_K |= absent_K | ~np.isnan(channel_K)
        live_K = self.live_K
        return np.where(live_K, value_K, 0.0), stands_K & live_K, missing_K & live_K

    def _filled(self, name: str, value_K: Floats, member_K: Flags, missing_K: Flags) -> Floats:
        layout = self.layout
        known_K = np.where(member_K, value_K, 0.0)
        filled = fill_by_means(known_K, member_K, missing_K, layout.group_start, layout.group_of_row, layout.turn)
        if filled.open_K.any():
            filled.value_K[filled.open_K] = np.nan_to_num(self._file_mean(name))
        return filled.value_K

    def _lost(self, missing_K: Flags) -> Flags:
        return np.asarray(np.logical_or.reduceat(missing_K, self.layout.dialogue_start[:-1]), dtype=np.bool_)

    def _status(self, channel: str, status: str) -> Flags:
        equal = pc.equal(self.table[f"reward_{channel}_status"], status)
        return np.asarray(pc.fill_null(equal, False).to_numpy(), dtype=np.bool_)


def columns_of(signal: str, origin: Origin) -> list[str]:
    """The columns a signal is made of, beside the keys."""
    names = origin.per_dialogue if signal == "reward" else signal.split("+")
    columns = [] if signal == "reward" else [f"reward_{name}" for name in names]
    return ["reward", "reward_filled", *columns, *(f"reward_{name}_status" for name in names)]
