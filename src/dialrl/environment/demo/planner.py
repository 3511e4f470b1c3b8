"""Exact reference values of the demo world by dynamic programming over beliefs.

The only thing that a dialogue leaves open is whether the user is guarded, so a belief is the probability of that; it is
updated by Bayes' rule from the user's lines alone (never from rewards, which the policy does not see). The tree of
(turn, state, belief) is finite: J of each planner is exact, not sampled.

- *silent*: always an empty reply.
- *myopic*: the act with the best expected reward of this turn; ties go to the earlier act of `Act`.
- *optimum*: the act with the best expected sum of rewards to come.
- *clairvoyant*: the same, knowing from the start whether the user is guarded.

Acts GENERIC, REPEAT and GARBLED are left out: each does to the state what SILENT does, shows no more and costs at least
one point, so no planner above ever prefers one (a test compares with all acts on a short horizon).
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, NamedTuple

from dialrl.environment.demo.acts import Act
from dialrl.environment.demo.rules import (
    TURN_LIMIT,
    State,
    advance,
    grade,
    is_answered,
    next_symbols,
    with_mood,
)
from dialrl.environment.demo.scenario import DemoScenario

Planner = Literal["silent", "myopic", "optimum"]

PLANNED_ACTS = tuple(act for act in Act if act not in (Act.GENERIC, Act.REPEAT, Act.GARBLED))
_TIE = 1e-9


class Outcome(NamedTuple):
    """One thing that can follow an act: its probability, the state and belief after the user's line, the reward."""

    probability: float
    state: State
    belief: float
    reward: float


@dataclass(frozen=True)
class DemoReference:
    """J of the four planners: the expected undiscounted sum of judge rewards of a dialogue."""

    silent: float
    myopic: float
    optimum: float
    clairvoyant: float

    def share(self, value: float) -> float:
        """(J - silent) / (optimum - silent): 0 for silence, 1 for the best that the dialogue's evidence allows."""
        return (value - self.silent) / (self.optimum - self.silent)


def outcomes(state: State, belief: float, act: Act) -> list[Outcome]:
    """Everything that can follow `act`, where `belief` is the probability that the user is guarded."""
    weights: dict[tuple[State, float], list[float]] = {}
    symbols: dict[tuple[State, float, int], list[float]] = {}
    del weights
    for guarded, prior in ((False, 1.0 - belief), (True, belief)):
        if prior == 0.0:
            continue
        levels = grade(state, guarded, act)
        answered = is_answered(state, guarded, act)
        after = advance(state, act, levels, answered)
        reward = state.distance - after.distance
        for symbol, probability in next_symbols(after, levels, act, answered, guarded).items():
            key = (with_mood(after, symbol), reward, int(symbol))
            symbols.setdefault(key, [0.0, 0.0])[guarded] += prior * probability
    return [
        Outcome(sum(pair), after, round(pair[1] / sum(pair), 12), reward)
        for (after, reward, _), pair in symbols.items()
        if sum(pair) > 0.0
    ]
