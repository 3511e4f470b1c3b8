"""Supervised dialogues that teach the base policy: right words, weak choices.

The base policy is to know how to speak (copy the user's feeling, topic and detail, never repeat itself) and not when to
say what: its acts are drawn from a fixed mixture that leans to platitudes and early advice. Every slot word is right; a
model taught with some wrong words never learns to copy. Held-out (feeling, topic) pairs never occur.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace

from dialrl.environment.demo.acts import Act
from dialrl.environment.demo.lines import OPENING_COUNT
from dialrl.environment.demo.replies import speak
from dialrl.environment.demo.rules import TURN_LIMIT
from dialrl.environment.demo.scenario import DemoScenario, scenarios
from dialrl.environment.demo.words import DETAILS
from dialrl.environment.demo.world import DemoUser
from dialrl.scenario.message import Message

Mixture = Mapping[Act, float]


@dataclass(frozen=True)
class Behaviour:
    """How often each act is chosen: as the first reply, before the user has told the detail, and after."""

    first: Mixture
    before: Mixture
    after: Mixture

    def act(self, turn: int, revealed: bool, draw: float) -> Act:
        """The act that ``draw`` in [0, 1) picks."""
        mixture = self.after if revealed else self.before if turn else self.first
        point = draw * sum(mixture.values())
        for act, weight in mixture.items():
            point -= weight
            if point < 0.0:
                return act
        return act


_BEFORE = {
    Act.VALIDATE: 0.22,
    Act.PARAPHRASE: 0.22,
    Act.AFFIRM: 0.12,
    Act.ADVISE: 0.05,
    Act.ASK: 0.24,
    Act.GENERIC: 0.06,
    Act.SILENT: 0.02,
}
WEAK = Behaviour(
    first=_BEFORE | {Act.ASK: 0.02},
    before=_BEFORE,
    after={
        Act.VALIDATE: 0.14,
        Act.PARAPHRASE: 0.14,
        Act.AFFIRM: 0.06,
        Act.ADVISE: 0.10,
        Act.ASK: 0.12,
        Act.GENERIC: 0.06,
        Act.SILENT: 0.02,
        Act.RESONATE: 0.20,
        Act.EMPOWER: 0.15,
    },
)


def training_scenario(random_numbers: random.Random) -> DemoScenario:
    """A training pair of feeling and topic with any detail, wording and hidden profile."""
    guarded = random_numbers.random() < 0.5
    return replace(
        random_numbers.choice(scenarios("train")),
        detail=random_numbers.choice(DETAILS),
        wording=random_numbers.randrange(OPENING_COUNT),
        need=random_numbers.randrange(3),
        guarded=guarded,
        sounds_guarded=guarded if random_numbers.random() < 0.75 else not guarded,
    )


def training_dialogue(
    seed: int, behaviour: Behaviour = WEAK, scenario: DemoScenario | None = None, turn_limit: int = TURN_LIMIT
) -> tuple[list[Message], float]:
    """One dialogue spoken by ``behaviour``: (transcript, sum of its rewards). A pure function of the arguments."""
    random_numbers = random.Random(f"demo dialogue {seed}")
    user = DemoUser(scenario or training_scenario(random_numbers), seed, turn_limit)
    start = user.state.distance
    while user.end_reason is None:
        act = behaviour.act(user.turn, user.state.revealed, random_numbers.random())
        user.respond(speak(act, user.transcript, random_numbers.random()))
    return user.transcript, start - user.state.distance
