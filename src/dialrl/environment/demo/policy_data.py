"""Supervised dialogues that teach the base policy: right words, weak choices.

The base policy is to know how to speak (copy the user's feeling, topic and detail, not repeat itself) and not when to
say what: its acts are drawn from a mixture that leans to platitudes and early advice, and asks mostly after a warm
line, so that some of its questions are answered. Every slot word is right; a model taught with some wrong words never
learns to copy. Held-out (feeling, topic) pairs never occur.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace

from dialrl.environment.demo.acts import Act
from dialrl.environment.demo.lines import OPENING_COUNT, Symbol
from dialrl.environment.demo.replies import speak
from dialrl.environment.demo.rules import TURN_LIMIT, State
from dialrl.environment.demo.scenario import DemoScenario, scenarios
from dialrl.environment.demo.words import DETAILS
from dialrl.environment.demo.world import DemoUser
from dialrl.scenario.message import Message

Mixture = Mapping[Act, float]


@dataclass(frozen=True)
class Behaviour:
    """How often each act is chosen: after a warm line, after any other, and once the user has told the detail.

    The act just before is left out: a speaker who knows how to speak does not do the same thing twice in a row.
    """

    warm: Mixture
    other: Mixture
    told: Mixture

    def act(self, symbol: Symbol, state: State, draw: float) -> Act:
        """The act that ``draw`` in [0, 1) picks as an answer to a line of ``symbol`` in ``state``."""
        whole = self.told if state.revealed else self.warm if symbol is Symbol.WARM else self.other
        mixture = {act: weight for act, weight in whole.items() if act is Act.SILENT or act is not state.last}
        point = draw * sum(mixture.values())
        for act, weight in mixture.items():
            point -= weight
            if point < 0.0:
                return act
        return act


_KIND = {Act.VALIDATE: 0.22, Act.PARAPHRASE: 0.22, Act.AFFIRM: 0.12}
_POOR = {Act.ADVISE: 0.14, Act.GENERIC: 0.14, Act.SILENT: 0.02}
WEAK = Behaviour(
    warm=_KIND | _POOR | {Act.ASK: 0.40},
    other=_KIND | _POOR | {Act.ASK: 0.04},
    told={
        Act.VALIDATE: 0.12,
        Act.PARAPHRASE: 0.12,
        Act.AFFIRM: 0.06,
        Act.ADVISE: 0.08,
        Act.GENERIC: 0.08,
        Act.SILENT: 0.02,
        Act.ASK: 0.06,
        Act.RESONATE: 0.28,
        Act.EMPOWER: 0.18,
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
    start, symbol = user.state.distance, Symbol.OPENING
    while user.end_reason is None:
        act = behaviour.act(symbol, user.state, random_numbers.random())
        symbol = user.respond(speak(act, user.transcript, random_numbers.random())).symbol
    return user.transcript, start - user.state.distance
