"""The stage ``returns`` over one input, table by table: what it reads, what it adds, what it counts.

Files are not here (``stage``): tables of whole groups come from a function, so that dialogues in memory go the same way
(``add_returns``). Two things need more than a group: the mean of the whole input, for a group that knows no reward at
all. It is computed by a pass of its own, and only when a group asks for it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa

from dialrl.errors import InputError
from dialrl.ragged import Floats
from dialrl.returns.batch import TurnBatch
from dialrl.returns.channels import Channel, ChannelValues, chosen_channels
from dialrl.returns.compute import Returns, Rewards, filled_returns, weighted_rewards
from dialrl.returns.config import ReturnsConfig
from dialrl.returns.tally import Tally
from dialrl.trajectory.layout import Layout, refuse_not_finite
from dialrl.trajectory.lineage import InputFile, StageRecord
from dialrl.trajectory.schema import KEYS

STAGE = "returns"
Tables = Callable[[Sequence[str]], Iterator[pa.Table]]


def add_returns(table: pa.Table, config: ReturnsConfig | None = None) -> pa.Table:
    """``table`` of whole groups in order, with the columns of the stage added: ``dialrl returns`` without files."""
    config = config or ReturnsConfig()
    work = ReturnsWork(table.column_names, chosen_channels(config), config, lambda names: iter([table.select(names)]))
    made = work.columns(table.select([*KEYS, *work.reads]))
    for name in work.adds:
        if name in table.column_names:
            table = table.drop_columns([name])
        table = table.append_column(name, made[name])
    return table


def returns_record(config: ReturnsConfig) -> StageRecord:
    """What the lineage says of returns made with ``config``: ``advantage`` reads discount and channels there."""
    return ReturnsWork((), chosen_channels(config), config, lambda names: iter(())).record()


class ReturnsWork:
    """The stage over one input with the columns ``names``; ``tables`` streams it, a given set of columns at a time."""

    def __init__(
        self, names: Sequence[str], channels: Sequence[Channel], config: ReturnsConfig, tables: Tables
    ) -> None:
        self.names = names
        self.channels = channels
        self.config = config
        self._tables = tables
        self.tally = Tally([channel.name for channel in channels])

    @property
    def adds(self) -> list[str]:
        own = [channel.name for channel in self.channels]
        values = [f"reward_{name}" for name in own if name != "given"]  # reward_given is the input's own column
        return [*values, *(f"reward_{name}_status" for name in own), "reward", "reward_filled", "return"]

    @property
    def reads(self) -> list[str]:
        wanted = [name for channel in self.channels for name in (*channel.needs, *channel.may_use)]
        common = ["stop_turn", "truncated"]
        return [name for name in dict.fromkeys([*wanted, *common]) if name in self.names]

    def columns(self, table: pa.Table) -> Mapping[str, pa.Array]:
        """The columns of this stage for one table of whole groups."""
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows is refused below, with its place
            batch, values, rewards, returns = self.compute(table)
        made = _as_columns(values, rewards, returns)
        keyed = pa.table({**{key: table[key] for key in KEYS}, **{n: made[n] for n in ("reward", "return")}})
        refuse_not_finite(keyed, ("reward", "return"), where="The arithmetic of returns")
        self.tally.add(batch, values, rewards, returns)
        return made

    def compute(self, table: pa.Table) -> tuple[TurnBatch, dict[str, ChannelValues], Rewards, Returns]:
        """The arithmetic of the stage on one table of whole groups."""
        batch, values, rewards = self._rewards(table)
        returns = filled_returns(rewards, batch.layout, self.config.gamma, self.config.missing, lambda: self._file_mean)
        return batch, values, rewards, returns

    def record(self, inputs: Sequence[InputFile] = ()) -> StageRecord:
        """The lineage record: options, inputs, counts, and the channels that belong to the dialogue."""
        return StageRecord(
            STAGE,
            options=self.config.semantic_values(),
            inputs=inputs,
            counts=self.tally.counts(),
            warnings=self.tally.warnings(),
            details={
                "weights": self.config.weights,
                "per_dialogue": [channel.name for channel in self.channels if channel.per_dialogue],
            },
        )

    def _rewards(self, table: pa.Table) -> tuple[TurnBatch, dict[str, ChannelValues], Rewards]:
        batch = TurnBatch(table, Layout.of(table), until_end=self.config.until == "end")
        values = {channel.name: _finite(channel, batch, self.config) for channel in self.channels}
        rewards = weighted_rewards(
            values, self.config.weights, batch.layout, batch.counted, self.config.missing, self.config.max_missing
        )
        return batch, values, rewards

    @cached_property
    def _file_mean(self) -> float:
        """Mean of all known rewards of dialogues that are not dropped; NaN when there is none."""
        total, number = 0.0, 0
        for table in self._tables([*KEYS, *self.reads]):
            rewards = self._rewards(table)[2]
            total += float(rewards.reward_K[rewards.known_K].sum())
            number += int(rewards.known_K.sum())
        return total / number if number else float("nan")


def _finite(channel: Channel, batch: TurnBatch, config: ReturnsConfig) -> ChannelValues:
    values = channel.values(batch, config)
    infinite_K = np.isinf(values.value_K)
    if infinite_K.any():
        row = int(np.flatnonzero(infinite_K)[0])
        raise InputError(
            f"Channel '{channel.name}' is {values.value_K[row]} in {batch.name(row)}; expected a finite number or null."
            f" Check the column{'s' if len(channel.needs) > 1 else ''} {', '.join(channel.needs)} there."
        )
    return values


def _as_columns(values: Mapping[str, ChannelValues], rewards: Rewards, returns: Returns) -> dict[str, pa.Array]:
    columns = {f"reward_{name}": _numbers(channel.value_K) for name, channel in values.items()}
    columns |= {f"reward_{name}_status": _statuses(channel) for name, channel in values.items()}
    return columns | {
        "reward": _numbers(rewards.reward_K),
        "reward_filled": _numbers(returns.filled_K),
        "return": _numbers(returns.return_K),
    }


def _numbers(value_K: Floats) -> pa.Array:
    """float64, NaN as null."""
    return pa.array(value_K, from_pandas=True)


def _statuses(channel: ChannelValues) -> pa.Array:
    """known, not_applicable or missing, one a turn."""
    code_K = np.zeros(len(channel.value_K), dtype=np.int8)
    if channel.applicable_K is not None:
        code_K[~channel.applicable_K] = 1
    code_K[channel.missing_K] = 2
    return pa.DictionaryArray.from_arrays(pa.array(code_K), ["known", "not_applicable", "missing"]).cast(pa.string())
