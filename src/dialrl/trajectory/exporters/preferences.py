"""Preference pairs of replies: turns of one group that stand in the same context, the better one chosen.

Direct preference optimisation compares replies to *one* prompt, so only turns with word for word the same context are
paired: the first turn of every dialogue of a group, later ones where everything said so far is the same. A turn whose
grade is missing is in no pair. Source: Rafailov et al. 2023, arXiv 2305.18290. Not here: what a turn is worth.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

from dialrl.trajectory.exporters.chat import ChatTurn


@dataclass(frozen=True)
class Candidate:
    """A reply with what it is worth."""

    turn: ChatTurn
    worth: float


@dataclass(frozen=True)
class Preference:
    """Two replies to one context; ``chosen`` is worth more."""

    chosen: Candidate
    rejected: Candidate


def preferences(
    candidates: Sequence[Candidate], *, pairs: Literal["best-worst", "all"], min_gap: float
) -> Iterator[Preference]:
    """The pairs of one group, context by context in order of first appearance.

    Replies that read the same are never paired, nor are those worth the same. Example: replies a, b, c to one context
    worth 1, 3, 2 -> (b, a), and with ``all`` also (c, a) and (b, c).
    """
    contexts: dict[object, list[Candidate]] = {}
    for candidate in candidates:
        contexts.setdefault(candidate.turn.context_key, []).append(candidate)
    for held in contexts.values():
        ranked = sorted(held, key=lambda candidate: -candidate.worth)  # stable: equals keep their order
        chosen = combinations(ranked, 2) if pairs == "all" else [(ranked[0], ranked[-1])]
        yield from (Preference(better, worse) for better, worse in chosen if _differ(better, worse, min_gap))


def _differ(better: Candidate, worse: Candidate, min_gap: float) -> bool:
    gap = better.worth - worse.worth
    return gap > 0 and gap >= min_gap and better.turn.row["reply"] != worse.turn.row["reply"]
