"""The demo world without its text: whole batches of dialogues played from tables of its rules, for the fast tier.

What may follow an act in a state is computed once by the world's own rules (``environment.demo.rules``) and kept; the
user's draws are those of ``DemoUser``. So a dialogue played here is the dialogue spoken in text from the same seeds
(``spoken``), which a test holds. Not here: learning (``fast``), credit (``fast_credit``).
"""

import random
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dialrl.environment.demo.lines import Symbol
from dialrl.environment.demo.rules import Levels, State, advance, grade, is_answered, next_symbols, with_mood
from dialrl.environment.demo.scenario import DemoScenario
from dialrl.environment.demo.world import draw_of
from dialrl.lab.fast_policy import CHOICES, FEATURES, encode_state, probabilities, turn_feature
from dialrl.ragged import Floats, Ints

_FEW = 1024


@dataclass(frozen=True)
class Seat:
    """Who is talked with, and the seeds of the user's and the policy's draws: a dialogue is a function of these."""

    scenario: DemoScenario
    sample: int
    user_seed: int
    policy_seed: int


@dataclass(frozen=True)
class Episodes:
    """D dialogues of K turns in file order: dialogue by dialogue, turn by turn.

    ``levels_K`` are the true levels, ``features_KF`` what the policy saw, ``entropy_K`` that of its choice in nats,
    ``node_K`` the place before the turn.
    """

    seats: Sequence[Seat]
    start_D: Ints  # (D + 1,) row offsets
    turn_K: Ints
    choice_K: Ints
    levels_K: Sequence[Levels]
    features_KF: Floats
    entropy_K: Floats
    node_K: Ints
    final_D: Sequence[State]

    @property
    def gain_D(self) -> Floats:
        """The undiscounted sum of true rewards, d(P_0) - d(P_T)."""
        pairs = zip(self.seats, self.final_D, strict=True)
        return np.array([State(seat.scenario.need).distance - final.distance for seat, final in pairs])

    @property
    def succeeded_D(self) -> NDArray[np.bool_]:
        """Dialogues that ended because every need is met."""
        return np.array([final.distance == 0 for final in self.final_D])


class _Move(NamedTuple):
    """What an act does: its levels, and the ways it may go on (cumulated probabilities, nodes)."""

    levels: Levels
    cumulated: tuple[float, ...]
    nodes: tuple[int, ...]


class FastWorld:
    """The world of one turn limit and extra trust. A *node* is a state with the user's last line, numbered as met."""

    def __init__(self, turn_limit: int, extra_trust: int = 0) -> None:
        self.turn_limit = turn_limit
        self.extra_trust = extra_trust
        self._numbers: dict[tuple[State, Symbol], int] = {}
        self._nodes: list[tuple[State, Symbol]] = []
        self._features_NF = np.zeros((_FEW, FEATURES))
        self._moves: list[list[_Move | None]] = []  # of node n: 2n if the user is open, 2n + 1 if guarded

    def play(
        self,
        weights_FA: Floats,
        seats: Sequence[Seat],
        starts: Sequence[tuple[int, int]] | None = None,
        most: int | None = None,
    ) -> Episodes:
        """One dialogue a seat, by sampling the policy's choices.

        ``starts``: the (turn, node) from which each goes on, instead of its opening; ``most``: turns from there.
        """
        draws = [random.Random(seat.policy_seed) for seat in seats]
        first, at = self._starts(seats) if starts is None else ([t for t, _ in starts], [node for _, node in starts])
        rounds: list[_Round] = []
        alive: list[int] = []
        for turn in range(self.turn_limit):
            alive += [seat for seat in range(len(seats)) if first[seat] == turn]
            if not alive:
                continue
            before = [at[seat] for seat in alive]
            features_NF = self._features_NF[before]
            features_NF[:, turn_feature(turn)] = 1.0
            shares_NA = probabilities(weights_FA, features_NF)
            choice_N = _choose(shares_NA, [draws[seat] for seat in alive])
            levels = [
                self._step(seats[seat], seat, turn, choice, at)
                for seat, choice in zip(alive, choice_N.tolist(), strict=True)
            ]
            rounds.append(_Round(turn, np.array(alive), choice_N, levels, features_NF, _entropy(shares_NA), before))
            alive = [
                seat
                for seat in alive
                if self._nodes[at[seat]][1] is not Symbol.FAREWELL and turn + 1 - first[seat] != most
            ]
        return _in_file_order(seats, rounds, [self._nodes[node][0] for node in at])

    def distance(self, node: int) -> float:
        """How far the state of a node is from the zone where every need is met."""
        return float(self._nodes[node][0].distance)

    def _starts(self, seats: Sequence[Seat]) -> tuple[list[int], list[int]]:
        """Turn and node at which each dialogue opens."""
        states = [State(seat.scenario.need, extra_trust=self.extra_trust) for seat in seats]
        return [0] * len(seats), [self._node(state, Symbol.OPENING) for state in states]

    def _step(self, who: Seat, seat: int, turn: int, choice: int, at: list[int]) -> Levels:
        """Moves dialogue ``seat`` one turn on, in ``at``; the true levels of its reply."""
        place = 2 * at[seat] + who.scenario.guarded
        levels, cumulated, nodes = self._moves[place][choice] or self._learn(place, choice)
        if len(nodes) == 1:
            at[seat] = nodes[0]
        else:
            draw = draw_of(who.scenario.scenario_id, who.user_seed, turn, "symbol")
            at[seat] = nodes[min(bisect_right(cumulated, draw), len(nodes) - 1)]
        return levels

    def _learn(self, place: int, choice: int) -> _Move:
        """Asks the world's rules what the choice does at a place, and keeps the answer."""
        state, act, guarded = self._nodes[place // 2][0], CHOICES[choice], bool(place % 2)
        levels, answered = grade(state, guarded, act), is_answered(state, guarded, act)
        after = advance(state, act, levels, answered)
        ways = next_symbols(after, levels, act, answered, guarded)
        totals, total = [], 0.0
        for probability in ways.values():
            total += probability
            totals.append(total)
        move = _Move(levels, tuple(totals), tuple(self._node(with_mood(after, symbol), symbol) for symbol in ways))
        self._moves[place][choice] = move
        return move

    def _node(self, state: State, symbol: Symbol) -> int:
        key = (state, symbol)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._nodes)
            self._nodes.append(key)
            self._moves += [[None] * len(CHOICES), [None] * len(CHOICES)]
            if number == len(self._features_NF):
                self._features_NF = np.concatenate([self._features_NF, np.zeros_like(self._features_NF)])
            self._features_NF[number] = encode_state(state, symbol)
        return number


class _Round(NamedTuple):
    """Turn t of the dialogues that reach it."""

    turn: int
    seat_N: Ints
    choice_N: Ints
    levels: list[Levels]
    features_NF: Floats
    entropy_N: Floats
    node: list[int]


def _choose(shares_NA: Floats, draws: Sequence[random.Random]) -> Ints:
    """The choice of each dialogue. A second number is drawn and left: the text path picks the wording with it."""
    pairs = [(each.random(), each.random()) for each in draws]
    draw_N = np.array([first for first, _ in pairs])
    below_N = (np.cumsum(shares_NA, axis=1) < draw_N[:, None]).sum(axis=1)
    choice_N: Ints = np.minimum(below_N, shares_NA.shape[1] - 1)
    return choice_N


def _entropy(shares_NA: Floats) -> Floats:
    values_N: Floats = -(shares_NA * np.log(np.maximum(shares_NA, 1e-300))).sum(axis=1)
    return values_N


def _in_file_order(seats: Sequence[Seat], rounds: Sequence[_Round], final: Sequence[State]) -> Episodes:
    seat_K = np.concatenate([each.seat_N for each in rounds])
    turn_K = np.repeat([each.turn for each in rounds], [len(each.seat_N) for each in rounds])
    order = np.argsort(seat_K, kind="stable")
    levels = [one for each in rounds for one in each.levels]
    return Episodes(
        seats,
        np.append(0, np.cumsum(np.bincount(seat_K, minlength=len(seats)))),
        turn_K[order],
        np.concatenate([each.choice_N for each in rounds])[order],
        [levels[place] for place in order.tolist()],
        np.concatenate([each.features_NF for each in rounds])[order],
        np.concatenate([each.entropy_N for each in rounds])[order],
        np.array([node for each in rounds for node in each.node])[order],
        final,
    )
