"""How the simulated user's emotion moves and when it ends a conversation: SAGE's rules and RLVER's. Pure.

Before each later line the simulator gives a signed change; the emotion is the sum, in SAGE each change held within 10,
the sum at most 100. Source: Zhang et al. 2025 (arXiv 2505.02847); RLVER's variant: arXiv 2507.03112.
"""

from dataclasses import dataclass

SUCCESS, FAILURE = 100.0, 10.0


@dataclass(frozen=True)
class EmotionRules:
    """Where the emotion starts, how far one turn moves it (None: freely), its ceiling, and the most user turns.

    ``least_outcome``: what an outcome is never below (None: it may be).
    """

    start: float
    largest_change: float | None
    most_turns: int
    ceiling: float = 100.0
    least_outcome: float | None = None

    def after(self, emotion: float, change: float) -> float:
        """Example, SAGE: 40 and a change of -15 -> 30; 95 and 8 -> 100."""
        if self.largest_change is not None:
            change = min(max(change, -self.largest_change), self.largest_change)
        return min(emotion + change, self.ceiling)

    def is_over(self, emotion: float) -> bool:
        """The user is content, or has had enough."""
        return emotion >= SUCCESS or emotion < FAILURE

    def outcome(self, emotion: float) -> float:
        """A hundredth of the emotion; in RLVER, where it is the reward, at least 0."""
        outcome = emotion / 100.0
        return outcome if self.least_outcome is None else max(self.least_outcome, outcome)


RULES = {"sage": EmotionRules(40.0, 10.0, 10), "rlver": EmotionRules(30.0, None, 8, least_outcome=0.0)}
