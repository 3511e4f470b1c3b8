"""The demo world's rule judge as a judge of the pipeline. The rules are in ``dialrl.judge.demo``."""

from collections.abc import Sequence

from dialrl.environment.demo.scenario import DemoScenario
from dialrl.judge import demo
from dialrl.judge.base import TurnVerdict
from dialrl.scenario.card import Scenario
from dialrl.scenario.message import Message


class DemoJudge:
    """Grades dialogues of the demo world. ``noise`` and ``missing`` are probabilities of faults, for the laboratory."""

    name = "demo"
    rubric = demo.DemoJudge.rubric

    def __init__(self, noise: float = 0.0, missing: float = 0.0) -> None:
        self._rules = demo.DemoJudge(noise, missing)

    async def assess(self, scenario: Scenario, opening: Sequence[Message], seed: int) -> tuple[float, ...]:
        """P_0 = (C, A, P) of the scenario."""
        return self._rules.assess(DemoScenario.from_card(scenario.card))

    async def grade(self, scenario: Scenario, dialogue: Sequence[Message], turn: int, seed: int) -> TurnVerdict:
        """Verdict on reply ``turn``."""
        return self._rules.grade(DemoScenario.from_card(scenario.card), dialogue, turn, seed)
