"""Asks a judge for one verdict and takes whatever comes back: a late, broken or misshapen answer is data, "missing".

Live grading and grading afterwards both ask here, so a judge's failure is recorded in one place and in one way.
"""

import asyncio
from collections.abc import Awaitable

from dialrl.errors import InputError
from dialrl.judge.base import TurnVerdict
from dialrl.state.rubric import Rubric

_LONGEST_ERROR = 500


def missing(error: str) -> TurnVerdict:
    """The verdict of a judgement that could not be had."""
    return TurnVerdict(grades=(), status="missing", error=error[:_LONGEST_ERROR])


async def ask(call: Awaitable[TurnVerdict], rubric: Rubric, *, timeout_seconds: float) -> TurnVerdict:
    """The verdict of ``call``, or a missing one that says why: timeout, the judge's exception, levels out of range."""
    try:
        verdict = await asyncio.wait_for(call, timeout_seconds)
    except TimeoutError:
        return missing("timeout")
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
