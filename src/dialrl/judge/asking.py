"""Asks a judge and takes whatever comes back: a late, broken or misshapen answer is data, "missing", with its reason.

Live grading and grading afterwards both ask here, so a judge's failure is recorded in one place and in one way.
"""

import asyncio
import math
from collections.abc import Awaitable
from dataclasses import dataclass

from dialrl.errors import HaltError, InputError, UsageError
from dialrl.judge.base import TurnVerdict
from dialrl.state.rubric import Rubric
from dialrl.trajectory.rows import storable

_LONGEST_ERROR = 500


def missing(error: str) -> TurnVerdict:
    """The verdict of a judgement that could not be had."""
    return TurnVerdict(grades=(), status="missing", error=storable(error)[:_LONGEST_ERROR])


@dataclass(frozen=True)
class Assessment:
    """P_0 by axis; None, and why, where it could not be had."""

    deficit: tuple[float, ...] | None
    error: str | None = None


async def ask_deficit(call: Awaitable[tuple[float, ...]], rubric: Rubric, *, timeout_seconds: float) -> Assessment:
    """The initial deficit of ``call``, or why there is none: timeout, the judge's exception, no number an axis."""
    try:
        deficit = await asyncio.wait_for(call, timeout_seconds)
    except TimeoutError:
        return Assessment(None, "timeout")
    except (HaltError, UsageError):
        raise
    except Exception as error:  # noqa: BLE001 - an assessment that breaks is data, whatever the judge raised
        return Assessment(None, storable(f"{type(error).__name__}: {error}")[:_LONGEST_ERROR])
    axes = rubric.axis_names
    if len(deficit) != len(axes) or not all(math.isfinite(value) for value in deficit):
        return Assessment(None, f"out_of_range: deficit {deficit!r:.100}; expected a number for each of {list(axes)}")
    return Assessment(tuple(float(value) for value in deficit))


async def ask(call: Awaitable[TurnVerdict], rubric: Rubric, *, timeout_seconds: float) -> TurnVerdict:
    """The verdict of ``call``, or a missing one that says why: timeout, the judge's exception, levels out of range."""
    try:
        verdict = await asyncio.wait_for(call, timeout_seconds)
    except TimeoutError:
        return missing("timeout")
    except (HaltError, UsageError):
        raise
    except Exception as error:  # noqa: BLE001 - a judgement that breaks is data, whatever the judge raised
        return missing(f"{type(error).__name__}: {error}")
    return _checked(verdict, rubric)


def _checked(verdict: TurnVerdict, rubric: Rubric) -> TurnVerdict:
    if verdict.status == "missing":
        return verdict if verdict.error else missing("the judge gave no reason")
    try:
        rubric.increment_from_levels({grade.indicator: grade.level for grade in verdict.grades})
    except (InputError, TypeError) as error:
        return missing(f"out_of_range: {error}")
    return verdict
