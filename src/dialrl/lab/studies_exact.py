"""The exact gradient of J: what every estimate of the fast tier's gradient is compared with.

J is the expected undiscounted sum of true rewards of a dialogue with the training scenarios, each as likely. The world
is finite, so the gradient is a sum over everything that can happen: forward the probability d of each place (state,
user's line, whether the user is guarded), backward the value Q of each choice there; then

    grad J = sum over places of d(place) sum over choices a of pi(a) (Q(place, a) - V(place)) grad logit_a.

The tree grows threefold a turn (69,000 places at 6 turns, a million at 8), so turn limits stay small.
"""

from collections import Counter
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from dialrl.environment.demo.lines import Symbol
from dialrl.environment.demo.planner import Outcome, outcomes
from dialrl.environment.demo.rules import State
from dialrl.environment.demo.scenario import scenarios
from dialrl.lab.fast_policy import CHOICES, encode_state, probabilities, turn_feature
from dialrl.ragged import Floats

WAYS = len(Symbol)  # more than can follow an act


@dataclass(frozen=True)
class _Level:
    """The N places of one turn, and what each choice does there if the user is open (0) or guarded (1).

    ``next_NGAW`` are places of the next turn (-1: the dialogue is over), padded with probability 0.
    """

    features_NF: Floats
    next_NGAW: NDArray[np.int32]
    probability_NGAW: Floats
    reward_NGA: Floats


class ExactWorld:
    """Everything that can happen within ``turn_limit`` turns of the standard demo world. Building it takes seconds."""

    def __init__(self, turn_limit: int) -> None:
        self.start_NG = _start()
        self.levels: list[_Level] = []
        places = [(State(need), Symbol.OPENING) for need in range(len(self.start_NG))]
        for turn in range(turn_limit):
            level, places = _grown(places, turn, last=turn == turn_limit - 1)
            self.levels.append(level)

    def value(self, weights_FA: Floats) -> float:
        """J of the policy."""
        values_NG = self._backward(self._shares(weights_FA))[0][1]
        return float((self.start_NG * values_NG).sum())

    def gradient(self, weights_FA: Floats) -> Floats:
        """(F, A) the gradient of J."""
        shares = self._shares(weights_FA)
        gradient_FA = np.zeros_like(weights_FA)
        backward = self._backward(shares)
        for level, shares_NA, (gain_NGA, value_NG), there_NG in zip(
            self.levels, shares, backward, self._forward(shares), strict=True
        ):
            pull_NA = (there_NG[:, :, None] * (gain_NGA - value_NG[:, :, None])).sum(axis=1) * shares_NA
            gradient_FA += level.features_NF.T @ pull_NA
        return gradient_FA

    def _shares(self, weights_FA: Floats) -> list[Floats]:
        """(N, A) the policy at each place, turn by turn."""
        return [probabilities(weights_FA, level.features_NF) for level in self.levels]

    def _backward(self, shares: list[Floats]) -> list[tuple[Floats, Floats]]:
        """Q (N, G, A) and V (N, G) of each turn."""
        found: list[tuple[Floats, Floats]] = []
        after_NG = np.zeros((1, 2))
        for level, shares_NA in zip(reversed(self.levels), reversed(shares), strict=True):
            padded_NG = np.vstack([after_NG, np.zeros(2)])  # place -1: over
            gain_NGA = np.stack(
                [
                    level.reward_NGA[:, g]
                    + (level.probability_NGAW[:, g] * padded_NG[level.next_NGAW[:, g], g]).sum(axis=2)
                    for g in (0, 1)
                ],
                axis=1,
            )
            after_NG = (gain_NGA * shares_NA[:, None, :]).sum(axis=2)
            found.append((gain_NGA, after_NG))
        return found[::-1]

    def _forward(self, shares: list[Floats]) -> list[Floats]:
        """(N, G) the probability of being at each place, turn by turn."""
        found = [self.start_NG]
        for level, shares_NA, later in zip(self.levels[:-1], shares[:-1], self.levels[1:], strict=True):
            there_NG = np.zeros((len(later.features_NF) + 1, 2))
            for g in (0, 1):
                flow_NAW = (found[-1][:, g, None] * shares_NA)[:, :, None] * level.probability_NGAW[:, g]
                np.add.at(there_NG[:, g], level.next_NGAW[:, g].ravel(), flow_NAW.ravel())
            found.append(there_NG[:-1])
        return found


@cache
def exact_world(turn_limit: int) -> ExactWorld:
    """The world of a turn limit, built once a process."""
    return ExactWorld(turn_limit)


def _start() -> Floats:
    """(N, G) the share of training scenarios with each need whose user is open, guarded."""
    known = scenarios("train")
    count = Counter((each.need, int(each.guarded)) for each in known)
    needs = 1 + max(need for need, _ in count)
    return np.array([[count[need, g] / len(known) for g in (0, 1)] for need in range(needs)])


def _grown(places: list[tuple[State, Symbol]], turn: int, *, last: bool) -> tuple[_Level, list[tuple[State, Symbol]]]:
    """The level of ``places``, and the places of the next turn."""
    shape = (len(places), 2, len(CHOICES))
    next_NGAW = np.full((*shape, WAYS), -1, dtype=np.int32)
    probability_NGAW, reward_NGA = np.zeros((*shape, WAYS), dtype=np.float64), np.zeros(shape)
    number: dict[tuple[State, Symbol], int] = {}
    for place, (state, _) in enumerate(places):
        for guarded in (0, 1):
            for choice, act in enumerate(CHOICES):
                for way, after in enumerate(outcomes(state, float(guarded), act)):
                    probability_NGAW[place, guarded, choice, way] = after.probability
                    reward_NGA[place, guarded, choice] += after.probability * after.reward
                    if not last:
                        next_NGAW[place, guarded, choice, way] = _numbered(after, number)
    features_NF = np.stack([encode_state(state, symbol) for state, symbol in places])
    features_NF[:, turn_feature(turn)] = 1.0
    used = max(1, int((probability_NGAW > 0).any(axis=(0, 1, 2)).sum()))
    level = _Level(features_NF, next_NGAW[..., :used].copy(), probability_NGAW[..., :used].copy(), reward_NGA)
    return level, list(number)


def _numbered(after: Outcome, number: dict[tuple[State, Symbol], int]) -> int:
    """The place that follows, -1 where the dialogue is over."""
    if after.symbol is Symbol.FAREWELL:
        return -1
    return number.setdefault((after.state, after.symbol), len(number))
