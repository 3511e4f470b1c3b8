"""Options of the judge ``implicit-reward`` (key ``implicit_options``). Light to import."""

from typing import Literal, Self

from pydantic import model_validator

from dialrl.config import StageConfig, semantic
from dialrl.trajectory.outcome_labels import OutcomeRange, range_fault


class ImplicitOptions(StageConfig):
    """From log-ratios of tokens to the reward of a turn."""

    beta: float = semantic(0.01, help="A token's score is beta times its log-ratio.", gt=0)
    normalise: Literal["softmax", "none"] = semantic(
        "softmax", help="softmax: the turns share out the dialogue's outcome; none: a turn gets the sum of its scores."
    )
    temperature: float = semantic(
        0.4, help="softmax: temperature of the shares; a low one gives all to one turn.", gt=0
    )
    outcome_range: OutcomeRange | None = semantic(
        None, help="softmax: outcomes that count as 0 and 1, linear in between; none: outcomes are in [0, 1]."
    )

    @model_validator(mode="after")
    def _has_a_range(self) -> Self:
        fault = range_fault(self.outcome_range)
        if fault:
            raise ValueError(fault)
        return self
