"""Runs the dialogues of one block side by side; what breaks in a dialogue stays in that dialogue."""

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

from dialrl.engine.base import Engine, SamplingSettings
from dialrl.errors import HaltError, UsageError
from dialrl.rollout.dialogue import DialogueRun, Row, Setting, failed_rows
from dialrl.rollout.plan import DialoguePlan
from dialrl.rollout.sampler import sampler_for
from dialrl.trajectory.rows import unstorable


async def run_block(
    plans: Sequence[DialoguePlan],
    setting: Setting,
    engine: Engine,
    sampling: SamplingSettings,
    *,
    attempts: int,
    gate: AbstractAsyncContextManager[Any] | None = None,
) -> list[list[Row]]:
    """Rows of each dialogue, in order of ``plans``. Failed dialogues are tried again together, then stored as failed.

    ``gate`` bounds the dialogues in flight, over all blocks. Raises HaltError when the engine itself breaks, or a
    budget is spent, UsageError when the settings cannot work for any dialogue.
    """
    results: dict[int, list[Row]] = {}
    pending = list(plans)
    for attempt in range(attempts):
        if not pending:
            break
        sampler = sampler_for(engine, sampling, len(pending))
        runs = [DialogueRun(plan, setting, sampler, attempt) for plan in pending]
        broken = _with_unstorable(runs, await asyncio.gather(*(_broken_by(run, gate) for run in runs)))
        for run, error in zip(runs, broken, strict=True):
            results[run.plan.order] = run.rows if error is None else failed_rows(run, error)
        pending = [run.plan for run, error in zip(runs, broken, strict=True) if error is not None]
    return [results[plan.order] for plan in plans]


async def _broken_by(run: DialogueRun, gate: AbstractAsyncContextManager[Any] | None) -> Exception | None:
    """Run a dialogue to its end; what broke it, if anything did."""
    try:
        async with gate or nullcontext():
            await run.run()
    except (HaltError, UsageError):  # settings that cannot be used are no dialogue's fault either
        raise
    except Exception as error:  # noqa: BLE001 - a broken dialogue is data, whatever its environment raised
        return error
    else:
        return None
    finally:
        run.sampler.leave()


def _with_unstorable(runs: Sequence[DialogueRun], broken: Sequence[Exception | None]) -> list[Exception | None]:
    """``broken``, and what no file can hold, such as a lone surrogate: it breaks its own dialogue and no other."""
    finished = [row for run, error in zip(runs, broken, strict=True) if error is None for row in run.rows]
    if unstorable(finished) is None:  # one look at all of them: the usual case
        return list(broken)
    return [error or unstorable(run.rows) for run, error in zip(runs, broken, strict=True)]
