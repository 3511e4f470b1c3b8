"""Turn-level group sampling: several replies to the same state are compared with each other, and only those.

From every turn of a dialogue (the *trunk*) the policy also draws other replies. ``branch-return`` lets each go on to
the end of its own dialogue and compares discounted returns: a clean comparison that costs a dialogue a reply.
``branch-reward`` compares the judge's verdict on the replies alone, which is cheap and short-sighted. Trunks are
played until as many policy turns are spent as the dialogues of a preset cost. Rewards are true ones. Not here: the loop
(``studies_cost``).
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from dialrl.advantage.pools import Moments, scaled
from dialrl.environment.demo.scenario import scenarios
from dialrl.lab.fast_world import Episodes, FastWorld, Seat
from dialrl.ragged import Flags, Floats, Ints, Scattered, discounted
from dialrl.seeds import seed_for

BranchMethod = Literal["branch-return", "branch-reward"]
CHUNK = 4  # trunks played at a time, until the budget is spent


@dataclass(frozen=True)
class Spent:
    """What an update cost: replies the policy drew and the judge graded, the user's answers, replies that are trained.

    Where only the judge's verdict on a branch is asked, the user need not answer it.
    """

    policy_turns: int = 0
    user_turns: int = 0
    trained_turns: int = 0

    def __add__(self, other: "Spent") -> "Spent":
        return Spent(
            self.policy_turns + other.policy_turns,
            self.user_turns + other.user_turns,
            self.trained_turns + other.trained_turns,
        )


@dataclass(frozen=True)
class TrainedTurns:
    """Replies to train on, with their advantages, and what they cost."""

    features_KF: Floats
    choice_K: Ints
    advantage_K: Floats
    spent: Spent


@dataclass(frozen=True)
class Branching:
    """How an update is made: ``branches`` replies a state, the trunk's own among them, for the price of ``dialogues``.

    The price is that number of dialogues as long as the trunks are; the trunk that would exceed it is left out.
    """

    method: BranchMethod
    branches: int
    dialogues: int
    gamma: float

    def batch(self, world: FastWorld, weights_FA: Floats, seed: int, iteration: int) -> TrainedTurns:
        """Play one update's trunks and branches and compare the replies to each state."""
        trunks = _trunk_seats(seed, iteration)
        made: list[TrainedTurns] = []
        turns = 0
        for first in range(0, len(trunks), CHUNK):
            for one in self._chunk(world, weights_FA, trunks[first : first + CHUNK], (seed, iteration)):
                turns += one.spent.trained_turns // self.branches
                spent = sum((each.spent.policy_turns for each in made), one.spent.policy_turns)
                if made and spent > self.dialogues * turns / (len(made) + 1):
                    return _joined(made)
                made.append(one)
        return _joined(made)

    def _chunk(
        self, world: FastWorld, weights_FA: Floats, seats: Sequence[Seat], run: tuple[int, int]
    ) -> list[TrainedTurns]:
        """Each trunk with its branches."""
        trunk = world.play(weights_FA, seats)
        rows_B = np.repeat(np.arange(len(trunk.turn_K)), self.branches - 1)
        dialogue_K = np.repeat(np.arange(len(seats)), np.diff(trunk.start_D))
        others = [
            _branch_seat(seats[dialogue_K[row]], int(trunk.turn_K[row]), 1 + number % (self.branches - 1), run)
            for number, row in enumerate(rows_B.tolist())
        ]
        starts = [(int(trunk.turn_K[row]), int(trunk.node_K[row])) for row in rows_B.tolist()]
        most = 1 if self.method == "branch-reward" else None
        branch = world.play(weights_FA, others, starts, most)
        return [self._compared(world, trunk, branch, rows_B, dialogue_K == d) for d in range(len(seats))]

    def _compared(
        self, world: FastWorld, trunk: Episodes, branch: Episodes, rows_B: Ints, mine_K: Flags
    ) -> TrainedTurns:
        """One trunk's replies (``mine_K``) and the branches from them, by z within each state."""
        firsts = branch.start_D[:-1]
        mine_B = mine_K[rows_B]
        own, other = np.flatnonzero(mine_K), firsts[mine_B]
        worth = np.concatenate([self._worth(world, trunk)[own], self._worth(world, branch)[other]])
        state = np.concatenate([np.arange(len(own)), rows_B[mine_B] - own[0]])
        pools = Scattered(state, len(own))
        moments, deviation = Moments.of(worth, None, pools)
        turns = len(own) + int(np.diff(branch.start_D)[mine_B].sum())
        return TrainedTurns(
            np.concatenate([trunk.features_KF[own], branch.features_KF[other]]),
            np.concatenate([trunk.choice_K[own], branch.choice_K[other]]),
            scaled(deviation, pools, moments),
            Spent(turns, len(own) if self.method == "branch-reward" else turns, len(worth)),
        )

    def _worth(self, world: FastWorld, episodes: Episodes) -> Floats:
        """(K,) what each reply is judged by: its return, or its reward alone."""
        gamma = 0.0 if self.method == "branch-reward" else self.gamma
        return discounted(rewards(world, episodes), episodes.start_D, episodes.turn_K, gamma)


def rewards(world: FastWorld, episodes: Episodes) -> Floats:
    """(K,) the true reward of each turn: how much nearer the user came to the zone."""
    before_K = np.array([world.distance(node) for node in episodes.node_K.tolist()])
    after_K = np.empty_like(before_K)
    after_K[:-1] = before_K[1:]
    after_K[episodes.start_D[1:] - 1] = [float(state.distance) for state in episodes.final_D]
    reward_K: Floats = before_K - after_K
    return reward_K


def _trunk_seats(seed: int, iteration: int) -> list[Seat]:
    """Training scenarios in an order of this update's own."""
    known = list(scenarios("train"))
    random.Random(seed_for(seed, iteration, "trunks", 0, 0, "order")).shuffle(known)
    return [
        Seat(
            scenario,
            0,
            user_seed=seed_for(seed, iteration, scenario.scenario_id, 0, 0, "user"),
            policy_seed=seed_for(seed, iteration, scenario.scenario_id, 0, 0, "policy"),
        )
        for scenario in known
    ]


def _branch_seat(trunk: Seat, turn: int, number: int, run: tuple[int, int]) -> Seat:
    """A dialogue that leaves the trunk at ``turn``, with draws of its own."""
    name = trunk.scenario.scenario_id
    return replace(
        trunk,
        sample=number,
        user_seed=seed_for(*run, name, number, turn, "branch user"),
        policy_seed=seed_for(*run, name, number, turn, "branch policy"),
    )


def _joined(made: Sequence[TrainedTurns]) -> TrainedTurns:
    return TrainedTurns(
        np.concatenate([one.features_KF for one in made]),
        np.concatenate([one.choice_K for one in made]),
        np.concatenate([one.advantage_K for one in made]),
        sum((one.spent for one in made), Spent()),
    )
