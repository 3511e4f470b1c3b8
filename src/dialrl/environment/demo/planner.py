"""Exact reference values of the demo world by dynamic programming over beliefs.

The only thing that a dialogue leaves open is whether the user is guarded, so a belief is the probability of that; it is
updated by Bayes' rule from the user's lines alone (never from rewards, which the policy does not see). The tree of
(turn, state, belief) is finite: J of each planner is exact, not sampled.

- *silent*: always an empty reply.
- *myopic*: the act with the best expected reward of this turn; ties go to the earlier act of ``Act``.
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
from dialrl.environment.demo.lines import Symbol
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
_TIE = 1e-9


class Outcome(NamedTuple):
    """One thing that can follow an act: what the user says, its probability, the state and belief then, the reward."""

    symbol: Symbol
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
    """Everything that can follow ``act``, where ``belief`` is the probability that the user is guarded.

    Once the detail is told nothing depends on that any more, so the belief is put to 0 and many branches become one.
    """
    found = []
    for symbol, after, reward, if_open, if_guarded in _transitions(state, act):
        open_weight, guarded_weight = (1.0 - belief) * if_open, belief * if_guarded
        total = open_weight + guarded_weight
        if total > 0.0:
            told = 0.0 if after.revealed else round(guarded_weight / total, 10)
            found.append(Outcome(symbol, total, after, told, reward))
    return found


@cache
def _transitions(state: State, act: Act) -> tuple[tuple[Symbol, State, float, float, float], ...]:
    """(symbol, state after, reward, probability if open, probability if guarded) of each thing the user may say."""
    found: dict[tuple[Symbol, State, float], list[float]] = {}
    for guarded in (False, True):
        levels = grade(state, guarded, act)
        answered = is_answered(state, guarded, act)
        after = advance(state, act, levels, answered)
        reward = state.distance - after.distance
        for symbol, probability in next_symbols(after, levels, act, answered, guarded).items():
            key = (symbol, with_mood(after, symbol), reward)
            found.setdefault(key, [0.0, 0.0])[guarded] += probability
    return tuple((*key, pair[0], pair[1]) for key, pair in found.items())


@cache
def useful_acts(state: State) -> tuple[Act, ...]:
    """SILENT, a question where one could be answered, and every act with a positive level: the rest are dominated."""
    return tuple(
        act
        for act in Act
        if act is Act.SILENT
        or max(grade(state, False, act)) > 0
        or (act is Act.ASK and not state.revealed and state.last is not Act.ASK)
    )


def expected_reward(state: State, belief: float, act: Act) -> float:
    """Expected reward of the turn itself."""
    return sum(outcome.probability * outcome.reward for outcome in outcomes(state, belief, act))


def _best(values: Sequence[tuple[float, Act]]) -> tuple[float, Act]:
    """The greatest value; the earlier act among values equal to within rounding."""
    top = max(value for value, _ in values)
    return next((value, act) for value, act in values if value >= top - _TIE)


@cache
def _last_turn(state: State) -> tuple[float, Act]:
    """With one reply left a question cannot pay, and every other act's reward is certain, whatever the belief."""
    return _best([(_transitions(state, act)[0][2], act) for act in useful_acts(state) if act is not Act.ASK])


class BeliefPlanner:
    """Dynamic programming for one planner and turn limit; every value is computed once and kept."""

    def __init__(self, planner: Planner, turn_limit: int = TURN_LIMIT) -> None:
        self.planner = planner
        self.turn_limit = turn_limit
        self._known: dict[tuple[int, State, float], tuple[float, Act]] = {}

    def plan(self, turn: int, state: State, belief: float) -> tuple[float, Act]:
        """(expected sum of rewards from ``turn`` on, the act to take now)."""
        if turn >= self.turn_limit or state.distance == 0:
            return 0.0, Act.SILENT
        if turn == self.turn_limit - 1 and self.planner == "optimum":
            return _last_turn(state)
        key = (turn, state, belief)
        if key not in self._known:
            self._known[key] = self._compute(turn, state, belief)
        return self._known[key]

    def _compute(self, turn: int, state: State, belief: float) -> tuple[float, Act]:
        if self.planner == "optimum":
            return _best([(self._value(turn, state, belief, act), act) for act in useful_acts(state)])
        act = Act.SILENT
        if self.planner == "myopic":
            _, act = _best([(expected_reward(state, belief, act), act) for act in useful_acts(state)])
        return self._value(turn, state, belief, act), act

    def _value(self, turn: int, state: State, belief: float, act: Act) -> float:
        return sum(
            outcome.probability * (outcome.reward + self.plan(turn + 1, outcome.state, outcome.belief)[0])
            for outcome in outcomes(state, belief, act)
        )


@cache
def planner(kind: Planner, turn_limit: int = TURN_LIMIT) -> BeliefPlanner:
    """The planner of a kind, shared within the process."""
    return BeliefPlanner(kind, turn_limit)


def prior_guarded(given: Sequence[DemoScenario]) -> dict[tuple[int, bool], float]:
    """P(guarded | need, how the opening sounds) among the scenarios given."""
    total = Counter((each.need, each.sounds_guarded) for each in given)
    guarded = Counter((each.need, each.sounds_guarded) for each in given if each.guarded)
    return {cue: guarded[cue] / total[cue] for cue in total}


def solve(given: Sequence[DemoScenario], turn_limit: int = TURN_LIMIT, extra_trust: int = 0) -> DemoReference:
    """Exact reference values, averaged over the scenarios given (each counts once), in the world of these settings."""
    prior = prior_guarded(given)

    def mean(kind: Planner, sees_hidden: bool = False) -> float:
        values = [
            planner(kind, turn_limit).plan(
                0,
                State(each.need, extra_trust=extra_trust),
                float(each.guarded) if sees_hidden else prior[each.need, each.sounds_guarded],
            )[0]
            for each in given
        ]
        return sum(values) / len(values)

    return DemoReference(mean("silent"), mean("myopic"), mean("optimum"), mean("optimum", sees_hidden=True))
