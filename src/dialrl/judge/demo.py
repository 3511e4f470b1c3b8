"""The demo world's judge: rules on the text, no language model.

It reads the scenario card (need, guardedness) and the transcript, and sees a reply through
``dialrl.environment.demo.acts.features`` alone. Levels only; the state model does the arithmetic. Two optional faults
for the laboratory: noise (a level moved by one step) and missing judgements, both decided by a seed.
"""

import random
from collections.abc import Sequence

from dialrl.environment.demo.acts import Act
from dialrl.environment.demo.rules import DEFICIT_LEVELS, Levels, grade, initial_deficit
from dialrl.environment.demo.scenario import DemoScenario
from dialrl.environment.demo.tracker import TrackedTurn, spoken, track
from dialrl.errors import InputError
from dialrl.judge.base import Grade, TurnVerdict
from dialrl.scenario.message import Message

DEFICIT_ITEMS = ("C.1", "C.2", "C.3", "A.1", "A.2", "A.3", "P.1", "P.2", "P.3")
INDICATORS = ("C.Prog", "C.Neg", "A.Prog", "A.Neg", "P.Prog", "P.Neg")
EVIDENCE_CHARACTERS = 120


class DemoJudge:
    """Grades replies of the demo world.

    ``noise``: probability that an indicator's level moves by one step (within its range). ``missing``: probability
    that a judgement fails. Both 0 by default; drawn from (seed, scenario, turn): the same call, the same verdict.
    ``extra_trust`` is that of the world it judges (``rules.State``).
    """

    name = "demo"
    rubric = "support"

    def __init__(self, noise: float = 0.0, missing: float = 0.0, extra_trust: int = 0) -> None:
        for option, value in (("noise", noise), ("missing", missing)):
            if not 0.0 <= value <= 1.0:
                raise InputError(f"The demo judge's '{option}' is a probability, expected 0 to 1, got {value}.")
        self.noise = noise
        self.missing = missing
        self.extra_trust = extra_trust

    def assess_levels(self, scenario: DemoScenario) -> dict[str, int]:
        """Level of each of the nine deficit items: one assessment a group, from the card."""
        return dict(zip(DEFICIT_ITEMS, DEFICIT_LEVELS[scenario.need], strict=True))

    def assess(self, scenario: DemoScenario) -> tuple[float, float, float]:
        """P_0 = (C, A, P)."""
        cognitive, affective, proactive = initial_deficit(scenario.need)
        return float(cognitive), float(affective), float(proactive)

    def grade(self, scenario: DemoScenario, transcript: Sequence[Message], turn: int, seed: int = 0) -> TurnVerdict:
        """Verdict on the policy's reply ``turn`` (from 0); what follows that reply is not read.

        Raises InputError when the transcript has no such reply or is no demo dialogue.
        """
        lines = spoken(transcript)[: 2 * turn + 2]
        if turn < 0 or len(lines) < 2 * turn + 2:
            raise InputError(f"The dialogue of {scenario.scenario_id} has {len(lines) // 2} replies, no turn {turn}.")
        return self._verdict(scenario, track(lines, self.extra_trust).turns[turn], lines[-1].content, turn, seed)

    def grade_dialogue(self, scenario: DemoScenario, transcript: Sequence[Message], seed: int = 0) -> list[TurnVerdict]:
        """The verdicts on all replies of a transcript, read once: equal to ``grade`` turn by turn."""
        replies = [line.content for line in spoken(transcript) if line.role == "assistant"]
        turns = track(transcript, self.extra_trust).turns
        return [
            self._verdict(scenario, turn, reply, place, seed)
            for place, (turn, reply) in enumerate(zip(turns, replies, strict=True))
        ]

    def _verdict(self, scenario: DemoScenario, tracked: TrackedTurn, reply: str, turn: int, seed: int) -> TurnVerdict:
        levels = self.seen_levels(grade(tracked.state, scenario.guarded, tracked.act), scenario, turn, seed)
        if levels is None:
            return TurnVerdict((), "missing", error="The demo judge was set to fail at random and failed here.")
        return TurnVerdict(_grades(levels, tracked.act, reply), "ok")

    def seen_levels(self, levels: Levels, scenario: DemoScenario, turn: int, seed: int) -> Levels | None:
        """What this judge makes of a reply whose true levels are ``levels``; None where its judgement fails."""
        if self.noise == self.missing == 0.0:
            return levels
        draws = random.Random(f"demo judge {seed} {scenario.scenario_id} {turn}")
        return None if draws.random() < self.missing else self._with_noise(levels, draws)

    def _with_noise(self, levels: Levels, draws: random.Random) -> Levels:
        return Levels(*(self._moved(level, name, draws) for name, level in zip(INDICATORS, levels, strict=True)))

    def _moved(self, level: int, indicator: str, draws: random.Random) -> int:
        """One step up or down within 0..2 (Prog) or -2..0 (Neg); away from a bound where the level is at one."""
        if draws.random() >= self.noise:
            return level
        low, high = (0, 2) if indicator.endswith("Prog") else (-2, 0)
        step = draws.choice((-1, 1))
        return level + step if low <= level + step <= high else level - step


def _grades(levels: Levels, act: Act, reply: str) -> tuple[Grade, ...]:
    reasoning = f"the reply counts as {act.name.lower()}"
    evidence = reply[:EVIDENCE_CHARACTERS]
    return tuple(
        Grade(name, level, evidence if level else None, reasoning)
        for name, level in zip(INDICATORS, levels, strict=True)
    )
