"""Advantage presets compared on the same returns: where they agree, whose sign flips, what their pools look like.

Presets have scales of their own, so what a dialogue gained or lost by another preset is measured after dividing each by
its root mean square. Not here: which preset is better (that takes training: ``dialrl lab``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa

from dialrl.advantage.config import AdvantageConfig
from dialrl.advantage.resolve import Origin
from dialrl.advantage.terms import Term
from dialrl.advantage.work import AdvantageWork
from dialrl.config import validated
from dialrl.errors import InputError
from dialrl.evaluate.compare_config import CompareConfig
from dialrl.ragged import Floats, Ints
from dialrl.trajectory.agreement import agreed, stage_records
from dialrl.trajectory.layout import Layout, floats
from dialrl.trajectory.reader import TrajectoryFile
from dialrl.trajectory.schema import KEYS

LISTED_TURNS = 64
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Credited:
    """One file's advantages, (K,), NaN where there is none; how they were made, and what its pools looked like."""

    name: str
    estimator: str
    advantage_K: Floats
    pools: Mapping[str, Mapping[str, Any]]

    @property
    def degenerate_share(self) -> float | None:
        """Share of its pools, over all its terms and scopes, in which nothing could be compared; None if not known."""
        number = sum(entry["pools"] for entry in self.pools.values())
        return sum(entry["degenerate"] for entry in self.pools.values()) / number if number else None

    @property
    def scaled_K(self) -> Floats:
        """Divided by the root mean square, so that presets can be set side by side."""
        size = float(np.sqrt(np.nanmean(np.square(self.advantage_K)))) if not np.isnan(self.advantage_K).all() else 0.0
        return self.advantage_K / size if size > _ROUNDING else np.zeros_like(self.advantage_K)


def compare_advantages(
    sources: Mapping[str, TrajectoryFile], config: CompareConfig
) -> tuple[dict[str, Any], dict[str, int]]:
    """Figures and counts of advantage files. Raises InputError where their turns or their returns differ."""
    keys = next(iter(sources.values())).read(list(KEYS))
    layout = Layout.of(keys)
    credited = [_credited(name, source, keys, config) for name, source in sources.items()]
    figures = {
        "presets": {one.name: _preset(one) for one in credited},
        "pairs": {f"{one.name} | {other.name}": _pair(one, other) for one, other in combinations(credited, 2)},
        "pools": {f"{one.name}, {pool}": dict(entry) for one in credited for pool, entry in one.pools.items()},
        "by_turn": _by_turn(credited, layout.turn),
        "most_changed": _most_changed(credited, keys, layout, config.most_changed),
    }
    counts = {"files": len(credited), "groups": layout.groups, "dialogues": layout.dialogues, "turns": layout.rows}
    return figures, counts


def same_returns(sources: Sequence[TrajectoryFile]) -> bool:
    """True when all files carry advantages computed from one and the same returns file."""
    made = [[record for _, record in stage_records(source, "advantage")] for source in sources]
    inputs = {tuple(sorted(one.digest for record in records for one in record.inputs)) for records in made}
    return len(inputs) == 1 and all(made)


def _credited(name: str, source: TrajectoryFile, keys: pa.Table, config: CompareConfig) -> Credited:
    table = source.read([*KEYS, "advantage"])
    if not table.select(list(KEYS)).equals(keys):
        raise InputError(f"The turns of '{name}' are others than the first file's: these are not the same dialogues.")
    return Credited(
        name=name,
        estimator=str(_credit(source).get("estimator", "imported")),
        advantage_K=floats(table["advantage"]),
        pools=_pools(source, config.batch_rows),
    )


def _credit(source: TrajectoryFile) -> Mapping[str, Any]:
    """Estimator and terms, empty for an imported advantage. Raises InputError where parts have different ones."""
    made = [(where, record.details) for where, record in stage_records(source, "advantage")]
    return agreed(made, done="credited", advice="Compare presets one a file.")


def _pools(source: TrajectoryFile, batch_rows: int) -> dict[str, Any]:
    """The pools of the file's own terms, computed again from the rewards it holds; empty for an imported advantage."""
    credit = _credit(source)
    if not credit:
        return {}
    terms = [validated(Term, term, where=f"the lineage of {source.where}") for term in credit["terms"]]
    origin = Origin.of_file(source)
    work = AdvantageWork(terms, origin, AdvantageConfig(), lambda names: source.groups(names, batch_rows))
    for table in source.groups([*KEYS, *work.reads], batch_rows):
        work.columns(table)
    return dict(work.tally.figures()["pools"])


def _preset(one: Credited) -> dict[str, Any]:
    known = one.advantage_K[~np.isnan(one.advantage_K)]
    shares = {"positive": (known > 0).mean(), "negative": (known < 0).mean(), "zero": (known == 0).mean()}
    return {
        "estimator": one.estimator,
        "mean_absolute": float(np.abs(known).mean()) if len(known) else None,
        "spread": float(known.std()) if len(known) else None,
        **{name: float(share) if len(known) else None for name, share in shares.items()},
        "degenerate_pools": one.degenerate_share,
        "turns": len(known),
    }


def _pair(one: Credited, other: Credited) -> dict[str, Any]:
    """Over the turns that both credit: a sign flip has one above 0 and the other below."""
    both = ~np.isnan(one.advantage_K) & ~np.isnan(other.advantage_K)
    left, right = one.advantage_K[both], other.advantage_K[both]
    flips = int((left * right < 0).sum())
    return {
        "correlation": correlation(left, right),
        "rank_correlation": correlation(average_ranks(left), average_ranks(right)),
        "sign_flips": flips,
        "sign_flip_share": flips / len(left) if len(left) else None,
        "zero_in_one": int(((left == 0) != (right == 0)).sum()),
        "turns": len(left),
    }


def correlation(left_N: Floats, right_N: Floats) -> float | None:
    """Pearson's correlation; None for fewer than two values or without a spread. Example: (1, 2, 3), (2, 4, 6) -> 1."""
    if len(left_N) < 2:
        return None
    left, right = left_N - left_N.mean(), right_N - right_N.mean()
    spread = float(np.sqrt((left @ left) * (right @ right)))
    return float(left @ right) / spread if spread > _ROUNDING else None


def average_ranks(value_N: Floats) -> Floats:
    """Ranks from 1, equal values sharing their mean rank. Example: 5, 1, 5 -> 2.5, 1, 2.5."""
    _, inverse, times = np.unique(value_N, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(times) - (times - 1) / 2.0)[inverse], dtype=np.float64)


def _by_turn(credited: Sequence[Credited], turn_K: Ints) -> dict[str, dict[str, Any]]:
    """Mean advantage of each turn index by file, and how many turns stand behind it."""
    found = {}
    for turn in np.unique(turn_K)[:LISTED_TURNS].tolist():
        here = turn_K == turn
        means = {one.name: _mean_or_none(one.advantage_K[here]) for one in credited}
        found[str(turn)] = {**means, "turns": int(here.sum())}
    return found


def _mean_or_none(value_N: Floats) -> float | None:
    known = value_N[~np.isnan(value_N)]
    return float(known.mean()) if len(known) else None


def _most_changed(
    credited: Sequence[Credited], keys: pa.Table, layout: Layout, number: int
) -> dict[str, dict[str, Any]]:
    """Dialogues whose scaled advantages differ most from the first file's, by the mean over their turns."""
    first = credited[0].scaled_K
    distance_K = np.max([np.abs(one.scaled_K - first) for one in credited[1:]], axis=0)
    distance_K = np.nan_to_num(distance_K)
    distance_D = np.add.reduceat(distance_K, layout.dialogue_start[:-1]) / layout.turns_D
    found = {}
    for place in np.argsort(-distance_D, kind="stable")[:number].tolist():
        start, end = layout.dialogue_start[place], layout.dialogue_start[place + 1]
        name = f"{keys['group_id'][int(start)].as_py()}/{layout.sample[start]}"
        means = {one.name: _mean_or_none(one.scaled_K[start:end]) for one in credited}
        found[name] = {"mean_change": float(distance_D[place]), **means, "turns": int(end - start)}
    return found
