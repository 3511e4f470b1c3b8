"""Counts and figures of ``dialrl advantage``, collected table by table. Not here: how they are printed."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from dialrl.advantage.estimate import TermResult
from dialrl.advantage.pools import PoolReport
from dialrl.advantage.signals import SignalBatch
from dialrl.advantage.terms import Term
from dialrl.ragged import Floats, Ints
from dialrl.trajectory.lineage import StageRecord

_LISTED_TURNS = 64
_OVER_FILE = ("batch", "dialogue-batch")


class Tally:
    """What the stage saw so far."""

    def __init__(self, terms: Sequence[Term]) -> None:
        self._terms = tuple(terms)
        self._counts = dict.fromkeys(
            ("groups", "dialogues", "turns", "turns_credited", "turns_without_advantage", "turns_filled"), 0
        )
        self._counts |= {"dialogues_dropped": 0, "smallest_group": 0, "largest_group": 0}
        self._reports: dict[tuple[str, str], PoolReport] = {}
        self._members: Ints = np.zeros(0, dtype=np.int64)
        self._absolute = 0.0
        self._lengths = _Correlation()

    def add(self, batch: SignalBatch, results: Sequence[TermResult], advantage_K: Floats) -> None:
        """Count one table of whole groups."""
        layout = batch.layout
        known_K = ~np.isnan(advantage_K)
        live_D = np.logical_or.reduceat(batch.live_K, layout.dialogue_start[:-1])
        counted = {
            "groups": layout.groups,
            "dialogues": layout.dialogues,
            "turns": layout.rows,
            "turns_credited": int(known_K.sum()),
            "turns_without_advantage": int((~known_K).sum()),
            "turns_filled": int((batch.live_K & np.isnan(batch.reward_K)).sum()),
            "dialogues_dropped": int((~live_D).sum()),
        }
        for name, amount in counted.items():
            self._counts[name] += amount
        self._add_sizes(layout.group_of_dialogue)
        for term, result in zip(self._terms, results, strict=True):
            self._add_reports(term, result)
        self._add_members(layout.turn[batch.credited_K])
        self._absolute += float(np.abs(advantage_K[known_K]).sum())
        self._add_lengths(batch, live_D)

    def _add_sizes(self, group_of_dialogue: Ints) -> None:
        sizes = np.bincount(group_of_dialogue)
        smallest = self._counts["smallest_group"] or int(sizes.min())
        self._counts["smallest_group"] = min(smallest, int(sizes.min()))
        self._counts["largest_group"] = max(self._counts["largest_group"], int(sizes.max()))

    def _add_reports(self, term: Term, result: TermResult) -> None:
        for scope, report in result.reports.items():
            key = (term.name, scope)
            if scope in _OVER_FILE and key in self._reports:
                continue  # one pool over all tables
            self._reports[key] = self._reports.get(key, PoolReport()) + report

    def _add_members(self, turn: Ints) -> None:
        members = np.bincount(np.minimum(turn, _LISTED_TURNS))
        longer, shorter = (members, self._members) if len(members) > len(self._members) else (self._members, members)
        self._members = longer.copy()
        self._members[: len(shorter)] += shorter

    def _add_lengths(self, batch: SignalBatch, live_D: np.ndarray[Any, np.dtype[np.bool_]]) -> None:
        start = batch.layout.dialogue_start[:-1]
        first_K = batch.numbers("return")[start]
        turns_D = np.add.reduceat(batch.live_K.astype(np.float64), start)
        known_D = live_D & ~np.isnan(first_K)
        self._lengths.add(turns_D[known_D], first_K[known_D])

    def counts(self) -> dict[str, int]:
        """Whole numbers, in the order they are printed."""
        return dict(self._counts)

    def figures(self) -> dict[str, Any]:
        """Terms in words, pools by term and scope, members by turn index, length against return, mean |advantage|."""
        members = self._members.tolist()
        credited = self._counts["turns_credited"]
        beyond = sum(members[_LISTED_TURNS:])
        return {
            "terms": {term.name: _in_words(term) for term in self._terms},
            "pools": {f"{name}: {scope}": _pool_figures(report) for (name, scope), report in self._reports.items()},
            "members_by_turn": members[:_LISTED_TURNS],
            **({"members_beyond": beyond} if beyond else {}),
            "length_return_correlation": self._lengths.value,
            "mean_absolute_advantage": self._absolute / credited if credited else None,
        }

    def warnings(self, asked: int | None) -> tuple[str, ...]:
        """Sentences a user should read. ``asked``: dialogues a group that the rollout asked for, if known."""
        lines = []
        for term in self._terms:
            lines += self._pool_warnings(term)
        smallest, wanted = self._counts["smallest_group"], max(asked or 0, self._counts["largest_group"])
        if smallest < wanted:
            lines.append(f"Group sizes differ: the smallest has {smallest} dialogues, {wanted} were expected.")
        if self._counts["turns_credited"] == 0:
            lines.append("No turn has an advantage: nothing in this file can be learned from.")
        return tuple(lines)

    def _pool_warnings(self, term: Term) -> list[str]:
        lines = []
        for (name, scope), report in self._reports.items():
            if name != term.name:
                continue
            if report.pools and report.degenerate == report.pools:
                lines.append(f"Term '{name}': all {report.pools} pools of scope {scope} are degenerate; it is 0.")
            if report.pairs and term.scale == term.centre == scope:
                lines.append(
                    f"Term '{name}': {report.pairs} of {report.pools} pools of scope {scope} have two members; divided"
                    " by their spread these become +1 and -1 however little they differ. --scale none only centres."
                )
        return lines


def samples_asked(rollouts: Iterable[StageRecord | None]) -> int | None:
    """Dialogues a group that the rollouts were asked for (the most), if their records say so."""
    asked = [None if record is None else record.options.get("samples") for record in rollouts]
    return max((number for number in asked if isinstance(number, int)), default=None)


def _in_words(term: Term) -> str:
    """``0.5 x return of reward (gamma 0.85), centre turn, scale turn``."""
    signal = term.signal if term.pooled_with is None else f"{term.signal} and {term.pooled_with}"
    what = {"none": signal, "sum": f"sum of {signal}", "return": f"return of {signal}"}[term.accumulate]
    gamma = "" if term.gamma is None else f" (gamma {term.gamma:g})"
    extras = [
        "leave-one-out" if term.leave_one_out else "",
        "sample std" if term.std == "sample" else "",
        f"spread at least {term.min_std:g}" if term.min_std else "",
        "normalised first" if term.normalises_first else "",
        "divided by the root of its number of rewards" if term.rescale == "root-count" else "",
        "whitened over the input" if term.whiten != "none" else "",
    ]
    anchor = f" by {term.anchor}" if term.anchor else ""
    parts = [f"{term.weight:g} x {what}{gamma}", f"centre {term.centre}{anchor}", f"scale {term.scale}"]
    return ", ".join([*parts, *(extra for extra in extras if extra)])


def _pool_figures(report: PoolReport) -> dict[str, Any]:
    share = report.degenerate / report.pools if report.pools else None
    spread = report.spread_total / report.pools if report.pools else None
    return {
        "pools": report.pools,
        "degenerate": report.degenerate,
        "degenerate_share": share,
        "pairs": report.pairs,
        "mean_spread": spread,
    }


class _Correlation:
    """Pearson correlation of pairs that come in pieces; None for fewer than two pairs or no spread."""

    def __init__(self) -> None:
        self._number = 0
        self._mean = np.zeros(2)
        self._products = np.zeros((2, 2))

    def add(self, left: Floats, right: Floats) -> None:
        if len(left) == 0:
            return
        pairs = np.stack([left, right])
        mean = pairs.mean(axis=1)
        deviation = pairs - mean[:, None]
        gap = mean - self._mean
        total = self._number + len(left)
        self._products += deviation @ deviation.T + np.outer(gap, gap) * (self._number * len(left) / total)
        self._mean += gap * (len(left) / total)
        self._number = total

    @property
    def value(self) -> float | None:
        spread = float(np.sqrt(self._products[0, 0] * self._products[1, 1]))
        return float(self._products[0, 1]) / spread if spread > 1e-12 else None
