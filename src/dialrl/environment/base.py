"""What an environment is: who answers the policy.

An environment offers scenarios and opens one session a dialogue. A session is driven turn by turn and must be a pure
function of (scenario, seed, replies so far), external calls apart, so that a killed run can replay it. Not here:
tokens, engines, grading; a live judge's state reaches the session as ``DialogueState``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from dialrl.scenario.card import Scenario
from dialrl.scenario.message import Message, Usage
from dialrl.trajectory.endings import END_REASONS, TERMINATED_REASONS, TRUNCATED_REASONS

__all__ = [
    "END_REASONS", "TERMINATED_REASONS", "TRUNCATED_REASONS", "DialogueSession", "DialogueState", "DirectorAction",
    "Environment", "EnvironmentStep", "PolicyReply",
]  # fmt: skip


@dataclass(frozen=True)
class PolicyReply:
    """The policy's reply as the environment sees it: text, never ids."""

    text: str
    finish_reason: str
    turn: int


@dataclass(frozen=True)
class DialogueState:
    """State after the reply, known only under live grading: position and deficit by axis, the stop rule that fired.

    ``axes``: the rubric's names, in the order of the points. ``success``: the success rule holds by the run's own
    parameters (``min_turns``, ``alpha``), whether or not it is set to stop the dialogue.
    """

    deficit: tuple[float, ...]
    position: tuple[float, ...]
    stop: str | None = None
    axes: tuple[str, ...] = ()
    success: bool = False


@dataclass(frozen=True)
class DirectorAction:
    tool: str
    argument: str | None = None
    guidance: str | None = None


@dataclass(frozen=True)
class EnvironmentStep:
    """What the environment says next: new messages for the policy, or the reason why the dialogue is over.

    With an ``end_reason`` the messages are what followed the last reply (``final_messages``).
    """

    messages: tuple[Message, ...]
    end_reason: str | None = None
    outcome: float | None = None
    flags: tuple[str, ...] = ()
    director: DirectorAction | None = None
    usage: tuple[Usage, ...] = ()


class DialogueSession(Protocol):
    """One dialogue."""

    async def opening(self) -> EnvironmentStep:
        """The messages before the first reply (system prompt and opening line): equal for all members of a group."""

    async def respond(self, reply: PolicyReply, state: DialogueState | None) -> EnvironmentStep:
        """The answer to one reply."""


class Environment(Protocol):
    """Offers scenarios and opens dialogues.

    ``turn_limit``: policy turns after which its dialogues are cut unless the rollout says otherwise.
    ``accepts_silence``: empty replies are a choice here, not a sign that the policy is stuck.
    """

    name: str
    turn_limit: int
    accepts_silence: bool

    def scenarios(self, split: str) -> Sequence[Scenario]:
        """The scenarios of a split ("train", "test" ...), in a fixed order."""

    def find(self, scenario_id: str) -> Scenario:
        """The scenario of that id. Raises InputError when there is none."""

    def graded_outcome(self, end_reason: str, deficit: Sequence[float], position: Sequence[float]) -> float | None:
        """The outcome of a dialogue whose every turn was graded; None where the environment itself knows better."""

    def open(self, scenario: Scenario, seed: int) -> DialogueSession:
        """A new dialogue; ``seed`` decides everything random about the user."""
