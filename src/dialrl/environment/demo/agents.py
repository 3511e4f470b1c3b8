"""Policies that speak text by a plan: the planners of ``planner``, heard through the same interface as any policy.

Used to check the exact values by simulation, and as the yardstick in the laboratory.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dialrl.environment.demo.acts import Act
from dialrl.environment.demo.planner import Planner, outcomes, planner
from dialrl.environment.demo.replies import speak
from dialrl.environment.demo.rules import TURN_LIMIT, State
from dialrl.environment.demo.scenario import DemoScenario
from dialrl.environment.demo.tracker import Track, track
from dialrl.environment.demo.world import DemoUser
from dialrl.scenario.message import Message

ReplyPolicy = Callable[[Sequence[Message], random.Random], str]


def belief_of(seen: Track, prior: float) -> float:
    """P(guarded) after the user's lines so far, by Bayes' rule from ``prior``, the belief after the opening."""
    belief = prior
    states = [*(turn.state for turn in seen.turns), seen.state]
    for turn, after in zip(seen.turns, states[1:], strict=True):
        candidates = outcomes(turn.state, belief, turn.act)
        matches = [each.belief for each in candidates if each.symbol is turn.symbol and each.state == after]
        belief = matches[0] if matches else belief
    return belief


@dataclass(frozen=True)
class PlannedAgent:
    """Says what a planner would do, given the transcript alone.

    ``prior``: P(guarded | need, whether the opening sounds guarded), see ``prior_guarded``.
    """

    kind: Planner
    prior: dict[tuple[int, bool], float]
    turn_limit: int = TURN_LIMIT

    def act(self, transcript: Sequence[Message]) -> Act:
        """The planned act as an answer to a transcript that ends with the user's line."""
        seen = track(transcript)
        belief = belief_of(seen, self.prior[seen.state.need, seen.sounds_guarded])
        return planner(self.kind, self.turn_limit).plan(len(seen.turns), seen.state, belief)[1]

    def __call__(self, transcript: Sequence[Message], random_numbers: random.Random) -> str:
        return speak(self.act(transcript), transcript, random_numbers.random())


def dialogue_return(
    policy: ReplyPolicy, scenario: DemoScenario, seed: int, turn_limit: int = TURN_LIMIT
) -> tuple[float, list[Message]]:
    """One dialogue through the text interface: (sum of its rewards = d(P_0) - d(P_T), the transcript)."""
    user, random_numbers = DemoUser(scenario, seed, turn_limit), random.Random(seed)
    while user.end_reason is None:
        user.respond(policy(user.transcript, random_numbers))
    return State(scenario.need).distance - user.state.distance, user.transcript
