"""The presets by plain loops over lists: slow, obvious, and written from docs/credit.md alone. Not a test module."""

import math
from collections.abc import Callable, Sequence

from credit_files import line_before

Group = Sequence[Sequence[float | None]]
Value = float | None


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def spread(values: Sequence[float]) -> float:
    middle = mean(values)
    return math.sqrt(mean([(value - middle) ** 2 for value in values]))


def degenerate(pool: Sequence[float]) -> bool:
    return len(pool) < 2 or spread(pool) <= 1e-6 * max(1.0, abs(mean(pool)))


def z(value: float, pool: Sequence[float]) -> float:
    return 0.0 if degenerate(pool) else (value - mean(pool)) / (spread(pool) + 1e-8)


class Plain:
    """Rewards with gaps -> fills, returns and pools, by loops. Assumes no dialogue is dropped."""

    def __init__(self, groups: Sequence[Group], gamma: float) -> None:
        known = [r for group in groups for dialogue in group for r in dialogue if r is not None]
        self.groups = groups
        self.filled = [[self._fill(group, dialogue, known) for dialogue in group] for group in groups]
        self.returns = [[self._return(dialogue, gamma) for dialogue in group] for group in self.filled]
        self.sums = [[math.fsum(dialogue) for dialogue in group] for group in self.filled]

    @staticmethod
    def _fill(group: Group, dialogue: Sequence[Value], known: Sequence[float]) -> list[float]:
        everyone = [r for other in group for r in other if r is not None]
        filled = []
        for turn, reward in enumerate(dialogue):
            column = [other[turn] for other in group if turn < len(other)]
            pool = [r for r in column if r is not None] or everyone or known
            filled.append(mean(pool) if reward is None else reward)
        return filled

    @staticmethod
    def _return(rewards: Sequence[float], gamma: float) -> list[float]:
        return [math.fsum(gamma ** (j - k) * rewards[j] for j in range(k, len(rewards))) for k in range(len(rewards))]

    def known_returns(self, group: int) -> list[tuple[int, float]]:
        """(turn, G) of the group's turns with a reward."""
        pairs = zip(self.groups[group], self.returns[group], strict=True)
        return [(k, gs[k]) for rewards, gs in pairs for k in range(len(rewards)) if rewards[k] is not None]

    def known_rewards(self, group: int) -> list[float]:
        return [r for dialogue in self.groups[group] for r in dialogue if r is not None]

    def all_returns(self) -> list[float]:
        return [value for group in range(len(self.groups)) for _, value in self.known_returns(group)]

    def all_rewards(self) -> list[float]:
        return [value for group in range(len(self.groups)) for value in self.known_rewards(group)]

    def all_sums(self) -> list[float]:
        return [value for group in self.sums for value in group]

    def turn_z(self, g: int, d: int, k: int) -> float:
        return z(self.returns[g][d][k], [value for turn, value in self.known_returns(g) if turn == k])

    def state_z(self, g: int, d: int, k: int) -> float:
        """z of the return among the group's turns that follow the same line."""
        own = line_before(d, k)
        pairs = enumerate(zip(self.groups[g], self.returns[g], strict=True))
        pool = [
            value
            for other, (rewards, returns) in pairs
            for turn, value in enumerate(returns)
            if rewards[turn] is not None and line_before(other, turn) == own
        ]
        return z(self.returns[g][d][k], pool)

    def reward_z(self, g: int, d: int, k: int) -> float:
        """z of the turn's own reward among those of the group at the same turn index."""
        column = [dialogue[k] for dialogue in self.groups[g] if k < len(dialogue)]
        return z(self.filled[g][d][k], [reward for reward in column if reward is not None])

    def others(self, g: int, d: int) -> list[float]:
        return [value for index, value in enumerate(self.sums[g]) if index != d]

    def off_group(self, g: int, d: int) -> float:
        return 0.0 if degenerate(self.sums[g]) else self.sums[g][d] - mean(self.sums[g])

    def all_off_group(self) -> list[float]:
        return [self.off_group(g, d) for g, group in enumerate(self.sums) for d in range(len(group))]


def _reward(plain: Plain, g: int, d: int, k: int) -> float:
    return plain.filled[g][d][k]


PLAIN: dict[str, Callable[[Plain, int, int, int], float]] = {
    "mapo": lambda p, g, d, k: 0.4 * p.turn_z(g, d, k) + 0.6 * z(_reward(p, g, d, k), p.all_rewards()),
    "mica": lambda p, g, d, k: 0.5 * p.turn_z(g, d, k) + 0.5 * z(_reward(p, g, d, k), p.known_rewards(g)),
    "turn-only": lambda p, g, d, k: p.turn_z(g, d, k),
    "group-only": lambda p, g, d, k: z(p.returns[g][d][k], [value for _, value in p.known_returns(g)]),
    "batch-only": lambda p, g, d, k: z(p.returns[g][d][k], p.all_returns()),
    "grpo": lambda p, g, d, k: z(p.sums[g][d], p.sums[g]),
    "dr-grpo": lambda p, g, d, k: p.off_group(g, d),
    "rloo": lambda p, g, d, k: 0.0 if degenerate(p.sums[g]) else p.sums[g][d] - mean(p.others(g, d)),
    "reinforce++": lambda p, g, d, k: z(p.sums[g][d], p.all_sums()),
    "reinforce++-baseline": lambda p, g, d, k: (
        0.0 if degenerate(p.all_off_group()) else p.off_group(g, d) / (spread(p.all_off_group()) + 1e-8)
    ),
    "mt-grpo": lambda p, g, d, k: p.reward_z(g, d, k) + z(p.sums[g][d], p.sums[g]),
    "gigpo": lambda p, g, d, k: p.state_z(g, d, k) + z(p.sums[g][d], p.sums[g]),
}


def plain_advantages(groups: Sequence[Group], preset: str, gamma: float = 0.85) -> list[Value]:
    """Advantages in file order, None where a turn has no reward."""
    plain = Plain(groups, gamma)
    return [
        None if reward is None else PLAIN[preset](plain, g, d, k)
        for g, group in enumerate(groups)
        for d, dialogue in enumerate(group)
        for k, reward in enumerate(dialogue)
    ]
