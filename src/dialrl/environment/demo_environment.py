"""The demo world as an environment: scenarios by split, sessions around its scripted user.

Not here: the world itself (``dialrl.environment.demo``), which is pure and synchronous.
"""

from collections.abc import Sequence

from dialrl.environment.base import DialogueState, EnvironmentStep, PolicyReply
from dialrl.environment.demo.rules import TURN_LIMIT
from dialrl.environment.demo.scenario import SPLIT_SIZES, DemoScenario, scenarios
from dialrl.environment.demo.world import DemoUser
from dialrl.errors import InputError, UsageError
from dialrl.scenario.card import Scenario
from dialrl.scenario.message import Message
from dialrl.state.model import zone_distance


class DemoEnvironment:
    """Offers the demo world's scenarios; silence is a choice there, so empty replies do not end a dialogue."""

    name = "demo"
    turn_limit = TURN_LIMIT
    accepts_silence = True

    def scenarios(self, split: str) -> Sequence[Scenario]:
        """The scenarios of ``split``: train or test."""
        for known in SPLIT_SIZES:
            if known == split:
                return [_scenario(demo) for demo in scenarios(known)]
        raise UsageError(f"The demo world has no split '{split}'; expected one of: {', '.join(SPLIT_SIZES)}.")

    def find(self, scenario_id: str) -> Scenario:
        """The scenario of that id, in whichever split."""
        for split in SPLIT_SIZES:
            for demo in scenarios(split):
                if demo.scenario_id == scenario_id:
                    return _scenario(demo)
        raise InputError(f"The demo world has no scenario '{scenario_id}'. See: dialrl scenarios list")

    def graded_outcome(self, end_reason: str, deficit: Sequence[float], position: Sequence[float]) -> float | None:
        """The undiscounted sum of judge rewards: d(P_0) - d(P_T)."""
        before, after = zone_distance([deficit, position])
        return float(before - after)

    def open(self, scenario: Scenario, seed: int) -> "DemoSession":
        """A dialogue with the user of ``scenario``."""
        return DemoSession(DemoUser(DemoScenario.from_card(scenario.card), seed))


class DemoSession:
    """One dialogue with a scripted user."""

    def __init__(self, user: DemoUser) -> None:
        self._user = user

    async def opening(self) -> EnvironmentStep:
        return EnvironmentStep((Message("user", self._user.opening()),))

    async def respond(self, reply: PolicyReply, state: DialogueState | None) -> EnvironmentStep:
        step = self._user.respond(reply.text)
        return EnvironmentStep((Message("user", step.text),), step.end_reason)


def _scenario(demo: DemoScenario) -> Scenario:
    return Scenario(demo.scenario_id, demo.split, dict(demo.to_card()))
