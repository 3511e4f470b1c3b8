"""EmoBench: what is right, the vote over samples, and the means over orders, as pure functions.

Scoring 2025: every answer counts, in the shipped order. Scoring 2024: in each order the samples vote, ties go to the
answer seen first, and what was not parsed loses to the runner-up; the orders' results are averaged. An EU item is right
only if emotion and cause are. Source: Sabour et al. 2024 (ACL, EmoBench) and its published code of both years. Not
here: files.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from dialrl.evaluate.emobench_items import SHIPPED, Item, letter

Places = tuple[int | None, ...]  # one answer a part: the place chosen as shown, None where it was not parsed


@dataclass
class Order:
    """The answers to one item in one order of its choices; ``right`` are the right places as shown."""

    right: tuple[int, ...]
    samples: dict[int, Places] = field(default_factory=dict)

    def is_right(self, places: Places) -> bool:
        return places == self.right

    @property
    def mean(self) -> float:
        """Share of the samples that are right."""
        return sum(map(self.is_right, self.samples.values())) / len(self.samples)

    @property
    def voted(self) -> float:
        """1 if the vote, taken part by part, is right."""
        drawn = [self.samples[number] for number in sorted(self.samples)]
        return float(self.is_right(tuple(vote([places[part] for places in drawn]) for part in range(len(self.right)))))


@dataclass
class Answered:
    """One item with its answers by order. ``chance`` is the probability that drawn answers are right."""

    task: str
    language: str
    qid: str
    chance: float
    category: str | None = None
    subcategory: str | None = None
    orders: dict[int, Order] = field(default_factory=dict)

    @property
    def cell(self) -> tuple[str, str]:
        return self.task, self.language

    @property
    def answers(self) -> list[Places]:
        return [places for order in self.orders.values() for places in order.samples.values()]

    @property
    def is_parsed(self) -> bool:
        """At least one answer has all its parts."""
        return any(None not in places for places in self.answers)

    def by_order(self, *, votes: bool) -> dict[int, float]:
        """Share right in each order, 0 to 1."""
        return {number: order.voted if votes else order.mean for number, order in sorted(self.orders.items())}

    def score(self, *, votes: bool) -> float:
        """0 to 1: the mean over orders with votes; without, the shipped order alone where there is one."""
        shares = self.by_order(votes=votes)
        if not votes and SHIPPED in shares:
            return shares[SHIPPED]
        return sum(shares.values()) / len(shares)

    def shuffled(self, *, votes: bool) -> float | None:
        """0 to 1 over the shuffled orders, None without any."""
        shares = [share for number, share in self.by_order(votes=votes).items() if number != SHIPPED]
        return sum(shares) / len(shares) if shares else None


def vote(samples: Sequence[int | None]) -> int | None:
    """The place most often chosen; ties go to the one seen first, None (not parsed) loses to the runner-up.

    Example: 2, 0, 0, 2, 1 -> 2; None, None, None, 3, 1 -> 3; None, None -> None.
    """
    ranked = [place for place, _ in Counter(samples).most_common()]
    return ranked[1] if ranked[0] is None and len(ranked) > 1 else ranked[0]


def best_constant_answer(items: Sequence[Item]) -> tuple[str, float]:
    """The letters that earn most if always given in the shipped order, and the share they earn, 0 to 1.

    The position artefact of a benchmark whose right answers are not spread evenly. Example: right answers at B, B, A
    -> ("B", 2 / 3).
    """
    earned = Counter(tuple(part.right for part in item.parts) for item in items)
    places, times = min(earned.items(), key=lambda entry: (-entry[1], entry[0]))
    return ",".join(map(letter, places)), times / len(items)
