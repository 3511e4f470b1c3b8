"""The reward channels: what each of them gives a turn. One table; users add theirs through ``dialrl.channels``.

A channel's value is *known*, *not applicable* (the turn should have none: an outcome before the last turn) or *missing*
(it should be there and is not: the judge failed). Source: docs/credit.md 1. Not here: weights, filling, returns.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dialrl.config import nearest
from dialrl.errors import UsageError
from dialrl.plugins import installed_names, load
from dialrl.ragged import Flags, Floats
from dialrl.returns.batch import TurnBatch
from dialrl.returns.config import ReturnsConfig
from dialrl.state.model import energy_step, norm, zone_distance

_RESERVED = ("filled", "given_status")


@dataclass(frozen=True)
class ChannelValues:
    """Values (K,), NaN where not known, and where one should be (None: on every turn)."""

    value_K: Floats
    applicable_K: Flags | None = None

    @property
    def missing_K(self) -> Flags:
        absent_K = np.isnan(self.value_K)
        return absent_K if self.applicable_K is None else absent_K & self.applicable_K


@dataclass(frozen=True)
class Channel:
    """One reward channel.

    ``needs`` are the columns it reads, ``may_use`` those it reads if they are there. ``per_dialogue``: it stands on the
    last counted turn, and where it is missing it is missing for the whole dialogue.
    """

    name: str
    description: str
    needs: tuple[str, ...]
    values: Callable[[TurnBatch, ReturnsConfig], ChannelValues]
    may_use: tuple[str, ...] = ()
    per_dialogue: bool = False


def incremental_distance(batch: TurnBatch, config: ReturnsConfig) -> ChannelValues:
    """d(P_k) - d(P_{k+1}): how far the turn moved towards the zone. Example: 26.249 - 24.536 = 1.713."""
    after_K, before_K = _distances(batch, config)
    return ChannelValues(_judged(batch, before_K - after_K))


def distance(batch: TurnBatch, config: ReturnsConfig) -> ChannelValues:
    """-d(P_{k+1}): the absolute-distance baseline."""
    after_K = zone_distance(batch.vectors("position"), config.zone_epsilon, config.axis_weights)
    return ChannelValues(_judged(batch, -after_K))


def increment_sum(batch: TurnBatch, config: ReturnsConfig) -> ChannelValues:
    """Sum of the increment over the axes. Example: (1, 1, 1) -> 3."""
    return ChannelValues(batch.vectors("increment").sum(axis=1))


def energy(batch: TurnBatch, config: ReturnsConfig) -> ChannelValues:
    """v . v*, the increment along the direct way. Example: (1, 1, 1) from (-17, -18, -13) -> 1.7165."""
    return ChannelValues(energy_step(batch.vectors("increment"), batch.vectors("deficit")))


def potential(batch: TurnBatch, config: ReturnsConfig) -> ChannelValues:
    """g * Phi(P_{k+1}) - Phi(P_k) with Phi = a / (a + |P|). Example: P from (-9, 0) to (0, 0), g .99 -> .99 - .5."""
    scale = config.potential_scale
    after_K = scale / (scale + norm(batch.vectors("position")))
    deficit_KA = batch.vectors("deficit")
    before_K = batch.before(after_K, lambda rows: scale / (scale + norm(deficit_KA[rows])))
    return ChannelValues(_judged(batch, config.potential_gamma * after_K - before_K))


def information_gain(batch: TurnBatch, config: ReturnsConfig) -> ChannelValues:
    """belief_after - belief_before (of their exponentials with ``belief: probability``).

    Not applicable on the turn that ends the dialogue by an answer or a format failure, nor on a last turn of unknown
    ending without a belief after it: there the policy asked for nothing that could tell it more.
    """
    before_K, after_K = batch.numbers("belief_before"), batch.numbers("belief_after")
    if config.belief == "probability":
        before_K, after_K = np.exp(before_K), np.exp(after_K)
    applicable_K = np.ones(batch.rows, dtype=np.bool_)
    last = batch.layout.last_row
    ended_K = batch.equals("end_reason", "answer") | batch.equals("end_reason", "format_failure")
    unknown = ~_known_text(batch, "end_reason")[last] & np.isnan(after_K[last])
    applicable_K[last] = ~(ended_K[last] | unknown)
    return ChannelValues(np.where(applicable_K, after_K - before_K, np.nan), applicable_K)


def outcome(batch: TurnBatch, config: ReturnsConfig) -> ChannelValues:
    """The dialogue's outcome on its last counted turn; missing if the dialogue broke or its outcome is not known."""
    broken_K = batch.equals("end_reason", "error") | batch.equals("status", "error")
    return _on_last_turn(batch, np.where(broken_K, np.nan, batch.numbers("outcome")))


def format_ending(batch: TurnBatch, config: ReturnsConfig) -> ChannelValues:
    """Penalty on the last counted turn of a dialogue that ended in a format failure or at the turn limit, else 0."""
    value_K = np.zeros(batch.rows)
    value_K[batch.equals("end_reason", "format_failure")] = config.format_penalty
    value_K[batch.equals("end_reason", "turn_limit")] = config.limit_penalty
    return _on_last_turn(batch, value_K)


def reference_kl(batch: TurnBatch, config: ReturnsConfig) -> ChannelValues:
    """-beta * kl, where kl is the sum over the turn's sampled tokens of log pi - log pi_ref."""
    return ChannelValues(-config.kl_beta * batch.numbers("kl"))


def implicit(batch: TurnBatch, config: ReturnsConfig) -> ChannelValues:
    """The turn's reward by an implicit reward model, as its judge wrote it (PRIME, ITPO)."""
    return ChannelValues(batch.numbers("implicit_reward"))


def given(batch: TurnBatch, config: ReturnsConfig) -> ChannelValues:
    """The reward that came with imported dialogues."""
    return ChannelValues(batch.numbers("reward_given"))


_STATE = ("deficit", "position")
_JUDGED = ("position_estimated", "judge_status")

BUILT_IN: tuple[Channel, ...] = (
    Channel(
        "incremental-distance", "d(P_k) - d(P_k+1), zone distance (MAPO, MICA)", _STATE, incremental_distance, _JUDGED
    ),
    Channel("distance", "-d(P_k+1), the absolute-distance baseline", ("position",), distance, _JUDGED),
    Channel("increment-sum", "sum of the increment over the axes", ("increment",), increment_sum),
    Channel("energy", "increment along the direct way, v . v*", ("increment", "deficit"), energy),
    Channel("potential", "g * Phi(P_k+1) - Phi(P_k), distance to the origin", _STATE, potential, _JUDGED),
    Channel(
        "information-gain", "belief_after - belief_before (IGPO)", ("belief_before", "belief_after"),
        information_gain, ("end_reason",),
    ),
    Channel(
        "outcome", "the dialogue's outcome, on its last turn", ("outcome",), outcome, ("end_reason", "status"), True
    ),
    Channel(
        "format", "penalty on the last turn after a format failure or at the turn limit, else 0", (),
        format_ending, ("end_reason",), True,
    ),
    Channel("kl", "-beta * kl to a reference policy", ("kl",), reference_kl),
    Channel("implicit", "reward by an implicit reward model (ITPO)", ("implicit_reward",), implicit),
    Channel("given", "the reward imported with the dialogues", ("reward_given",), given),
)  # fmt: skip


def channel(name: str) -> Channel:
    """The channel ``name``, built in or of an installed package. Raises UsageError with the nearest known name."""
    built_in = {channel.name: channel for channel in BUILT_IN}
    if name in built_in:
        return built_in[name]
    try:
        found = load("channels", name, built_in=_RESERVED)
    except KeyError:
        known = [*built_in, *installed_names("channels", built_in=[*built_in, *_RESERVED])]
        raise UsageError(f"Unknown reward channel '{name}'.{nearest(name, known)} Known: {', '.join(known)}.") from None
    if not isinstance(found, Channel):
        raise UsageError(f"The channel '{name}' of an installed package is a {type(found).__name__}, no Channel.")
    return found


def chosen_channels(config: ReturnsConfig) -> tuple[Channel, ...]:
    """The channels that ``config`` names. Raises UsageError with the nearest known name."""
    return tuple(channel(name) for name in config.weights)


def _distances(batch: TurnBatch, config: ReturnsConfig) -> tuple[Floats, Floats]:
    """Zone distance after and before each turn."""
    after_K = zone_distance(batch.vectors("position"), config.zone_epsilon, config.axis_weights)
    deficit_KA = batch.vectors("deficit")
    before_K = batch.before(
        after_K, lambda rows: zone_distance(deficit_KA[rows], config.zone_epsilon, config.axis_weights)
    )
    return after_K, before_K


def _judged(batch: TurnBatch, value_K: Floats) -> Floats:
    """NaN where the position is only an estimate because the judgement is missing."""
    absent_K = batch.truths("position_estimated") | batch.equals("judge_status", "missing")
    return np.where(absent_K, np.nan, value_K) if absent_K.any() else value_K


def _on_last_turn(batch: TurnBatch, value_K: Floats) -> ChannelValues:
    """Move what the dialogue's last row says to its last counted turn; not applicable on all others."""
    dialogues, rows = batch.last_counted
    moved_K = np.full(batch.rows, np.nan)
    moved_K[rows] = value_K[batch.layout.last_row[dialogues]]
    applicable_K = np.zeros(batch.rows, dtype=np.bool_)
    applicable_K[rows] = True
    return ChannelValues(moved_K, applicable_K)


def _known_text(batch: TurnBatch, name: str) -> Flags:
    if not batch.has(name):
        return np.zeros(batch.rows, dtype=np.bool_)
    return np.asarray(batch.table[name].is_valid().to_numpy(), dtype=np.bool_)
