"""Computes one term over a table of whole groups: accumulate, centre, scale, in the term's order.

Pools of the whole input (``batch``, ``dialogue-batch``) need moments collected over all tables first
(``batch_moments``). Source: docs/credit.md 2. Not here: which terms (``presets``), files (``stage``).
"""

from dataclasses import dataclass

import numpy as np

from dialrl.advantage.pools import Moments, PoolReport, centred, scaled
from dialrl.advantage.resolve import Origin
from dialrl.advantage.signals import Signal, SignalBatch
from dialrl.advantage.terms import Scope, Term
from dialrl.ragged import Flags, Floats, Ints, Pools, Runs, Stacked, Whole, discounted, turn_pools

_OVER_FILE = ("batch", "dialogue-batch")


@dataclass(frozen=True)
class Items:
    """What a term normalises: N values (one a turn, one a dialogue, or several signals stacked) and who forms pools."""

    value_N: Floats
    member_N: Flags | None


@dataclass(frozen=True)
class TermResult:
    """The term's value on every turn, NaN where it has none, and what its pools looked like by scope."""

    value_K: Floats
    reports: dict[Scope, PoolReport]


def needs_whole_file(term: Term) -> bool:
    """True when the term has a pool that spans the input."""
    return term.whiten != "none" or term.centre in _OVER_FILE or term.scale in _OVER_FILE


def batch_moments(term: Term, batch: SignalBatch, origin: Origin) -> Moments:
    """One table's part of the moments that the term needs of the whole input; merge them over all tables.

    They are those of the values, or of the centred values where the centre is a smaller scope than the scale; of what
    comes out at last where that is whitened.
    """
    if term.whiten != "none":
        value_K, _ = _before_whitening(term, batch, origin, None)
        return Moments.of(value_K[~np.isnan(value_K)], None, Whole())[0]
    items = _items(term, batch, origin)
    value_N = items.value_N
    if term.centre != "none" and term.centre not in _OVER_FILE:
        pools = _pools(term.centre, term, batch)
        moments, deviation_N = Moments.of(value_N, items.member_N, pools)
        value_N = centred(deviation_N, pools, moments, leave_one_out=term.leave_one_out)
    return Moments.of(value_N, items.member_N, Whole())[0]


def compute_term(term: Term, batch: SignalBatch, origin: Origin, over_file: Moments | None) -> TermResult:
    """The term on every turn of ``batch``. ``over_file``: merged ``batch_moments``, for terms that need them."""
    value_K, reports = _before_whitening(term, batch, origin, None if term.whiten != "none" else over_file)
    if term.whiten != "none" and over_file is not None:
        kind, least = term.std or "population", term.min_std or 0.0
        value_K = scaled(value_K - over_file.mean_P, Whole(), over_file, kind=kind, least=least)
        reports["batch"] = PoolReport.of(over_file, kind)
    return TermResult(value_K + 0.0, reports)  # no negative zeros


def _before_whitening(
    term: Term, batch: SignalBatch, origin: Origin, over_file: Moments | None
) -> tuple[Floats, dict[Scope, PoolReport]]:
    items = _items(term, batch, origin)
    value_N, reports = _normalise(term, items, batch, over_file)
    value_K = _on_turns(term, value_N, batch)
    credited_K = batch.credited_K
    if term.per_dialogue:
        lost_D = batch.signal(term.signal).lost_D
        credited_K = credited_K & ~np.repeat(lost_D, batch.layout.turns_D) if lost_D.any() else credited_K
    return value_K if credited_K.all() else np.where(credited_K, value_K, np.nan), reports


def _items(term: Term, batch: SignalBatch, origin: Origin) -> Items:
    signals = [batch.signal(name) for name in term.signals]
    if term.per_dialogue:
        return _dialogue_items(signals[0], batch)
    if term.has_return and not term.normalises_first:
        return _return_items(term, signals[0], batch, origin)
    value_N = np.concatenate([signal.value_K for signal in signals]) if len(signals) > 1 else signals[0].value_K
    member_N = np.concatenate([signal.member_K for signal in signals]) if len(signals) > 1 else signals[0].member_K
    return Items(value_N, _unless_all(member_N))


def _dialogue_items(signal: Signal, batch: SignalBatch) -> Items:
    start = batch.layout.dialogue_start[:-1]
    there_D = np.logical_or.reduceat(signal.stands_K, start)
    return Items(np.add.reduceat(signal.value_K, start), _unless_all(there_D & ~signal.lost_D))


def _return_items(term: Term, signal: Signal, batch: SignalBatch, origin: Origin) -> Items:
    if term.signal == "reward" and term.gamma == origin.gamma and term.rescale == "none":
        return_K = batch.numbers("return")
        known_K = ~np.isnan(return_K)
        return Items(return_K, None) if known_K.all() else Items(np.where(known_K, return_K, 0.0), known_K)
    count_K = _rewards_left(signal, batch)
    return_K = _discounted(signal.value_K, term, batch)
    if term.rescale == "root-count":
        return_K /= np.sqrt(np.maximum(count_K, 1.0))
    missing_K = signal.stands_K & ~signal.member_K
    return Items(return_K, _unless_all((count_K > 0) & ~missing_K))


def _normalise(
    term: Term, items: Items, batch: SignalBatch, over_file: Moments | None
) -> tuple[Floats, dict[Scope, PoolReport]]:
    reports: dict[Scope, PoolReport] = {}
    value_N = items.value_N
    kind, least, loo = term.std or "population", term.min_std or 0.0, term.leave_one_out
    if term.centre != "none":
        pools, moments, deviation_N = _pooled(term.centre, term, value_N, items, batch, over_file)
        reports[term.centre] = PoolReport.of(moments, kind)
        if term.centre == term.scale:
            return scaled(deviation_N, pools, moments, kind=kind, least=least, leave_one_out=loo), reports
        value_N = centred(deviation_N, pools, moments, leave_one_out=loo)
    if term.scale != "none":
        pools, moments, _ = _pooled(term.scale, term, value_N, items, batch, over_file)
        reports[term.scale] = PoolReport.of(moments, kind)
        value_N = scaled(value_N, pools, moments, kind=kind, least=least)
    return value_N, reports


def _pooled(
    scope: Scope, term: Term, value_N: Floats, items: Items, batch: SignalBatch, over_file: Moments | None
) -> tuple[Pools, Moments, Floats]:
    """The scope's pools, their moments, and the values minus their pool's mean."""
    if scope in _OVER_FILE and over_file is not None:
        return Whole(), over_file, value_N - over_file.mean_P
    pools = _pools(scope, term, batch)
    if scope == "dialogue-means":
        layout = batch.layout
        dialogues, of_dialogues = Runs(layout.dialogue_start), _pools("dialogue-group", term, batch)
        return pools, *Moments.by_dialogue(value_N, items.member_N, pools, dialogues, of_dialogues)
    return pools, *Moments.of(value_N, items.member_N, pools)


def _on_turns(term: Term, value_N: Floats, batch: SignalBatch) -> Floats:
    """From the normalised values to one a turn."""
    if not term.normalises_first:
        return np.repeat(value_N, batch.layout.turns_D) if term.per_dialogue else _where_any(value_N, term, batch)
    signals = [batch.signal(name) for name in term.signals]
    if term.per_dialogue:
        placed_K, count_K = _at_the_end(value_N, signals[0], batch)
    else:
        parts = np.split(value_N, len(signals))
        placed_K = np.sum([np.where(s.stands_K, part, 0.0) for s, part in zip(signals, parts, strict=True)], axis=0)
        count_K = np.sum([_rewards_left(signal, batch) for signal in signals], axis=0)
    return_K = _discounted(placed_K, term, batch)
    return return_K / np.sqrt(np.maximum(count_K, 1.0)) if term.rescale == "root-count" else return_K


def _where_any(value_K: Floats, term: Term, batch: SignalBatch) -> Floats:
    """0 on turns that have no value of the signal, nor a later one in a return: they were compared with nobody."""
    if term.signal == "reward":  # every turn that counts has one
        return value_K
    signal = batch.signal(term.signal)
    there_K = _rewards_left(signal, batch) > 0 if term.has_return else signal.stands_K
    return value_K if there_K.all() else np.where(there_K, value_K, 0.0)


def _at_the_end(value_D: Floats, signal: Signal, batch: SignalBatch) -> tuple[Floats, Floats]:
    """Each dialogue's value on its last live turn; it is one reward in every return of the dialogue."""
    start = batch.layout.dialogue_start[:-1]
    live_D: Ints = np.add.reduceat(batch.live_K.astype(np.int64), start)
    there_D = (live_D > 0) & ~signal.lost_D
    placed_K = np.zeros(batch.layout.rows)
    placed_K[(start + live_D - 1)[there_D]] = value_D[there_D]
    return placed_K, np.ones(batch.layout.rows)


def _discounted(value_K: Floats, term: Term, batch: SignalBatch) -> Floats:
    gamma = 1.0 if term.gamma is None else term.gamma
    return discounted(value_K, batch.layout.dialogue_start, batch.layout.turn, gamma)


def _rewards_left(signal: Signal, batch: SignalBatch) -> Floats:
    """Number of rewards, known or filled, in the return of each turn."""
    return discounted(signal.stands_K.astype(np.float64), batch.layout.dialogue_start, batch.layout.turn, 1.0)


def _pools(scope: Scope, term: Term, batch: SignalBatch) -> Pools:
    layout = batch.layout
    pools: Pools
    if scope in _OVER_FILE:
        pools = Whole()
    elif scope == "turn":
        pools = turn_pools(layout.group_of_row, layout.turn)
    elif scope == "state":
        pools = batch.state_pools(term.anchor or "observation")
    elif scope in ("group", "dialogue-means"):
        pools = Runs(layout.group_start)
    else:
        pools = Runs(np.searchsorted(layout.dialogue_start, layout.group_start))
    return pools if len(term.signals) == 1 else Stacked(pools, len(term.signals))


def _unless_all(member_N: Flags) -> Flags | None:
    """None, the fast way, when everybody is a member."""
    return None if member_N.all() else member_N
