"""A dialogue's outcome as a label in [0, 1]: what a model of outcomes is trained on and shares out.

Not here: where outcomes come from (``rollout``, ``judge``), and dialogues without one.
"""

import math

from dialrl.errors import InputError

OutcomeRange = tuple[float, float]


def range_fault(limits: OutcomeRange | None) -> str | None:
    """What is wrong with an ``outcome_range``; None when nothing is."""
    if limits is None or (all(math.isfinite(limit) for limit in limits) and limits[0] < limits[1]):
        return None
    return f"outcome_range {list(limits)} must be two finite numbers, the lower one first"


def outcome_label(outcome: float, limits: OutcomeRange | None, *, where: str) -> float:
    """The label of an outcome: itself, or its place between ``limits``, held within [0, 1].

    Without limits an outcome outside [0, 1] raises InputError, naming ``where``. Example, limits (0, 10): 4 -> .4,
    12 -> 1, -3 -> 0.
    """
    if not math.isfinite(outcome):
        raise InputError(f"{where} has outcome {outcome}; expected a finite number, or null where it is not known.")
    if limits is not None:
        low, high = limits
        return min(max((outcome - low) / (high - low), 0.0), 1.0)
    if not 0.0 <= outcome <= 1.0:
        raise InputError(
            f"{where} has outcome {outcome:g}; a label is a number from 0 to 1. Say which outcomes count as 0 and as 1,"
            " for example: --set outcome_range='[0, 10]' (dialrl judge: --set implicit_options.outcome_range='[0, 10]')"
        )
    return outcome


def is_clipped(outcome: float, limits: OutcomeRange | None) -> bool:
    """Whether an outcome lies outside its limits, so that its label was held at 0 or 1."""
    return limits is not None and not limits[0] <= outcome <= limits[1]
