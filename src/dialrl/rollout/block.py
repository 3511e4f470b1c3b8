"""Runs the dialogues of one block side by side; what breaks in a dialogue stays in that dialogue."""

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

from dialrl.engine.base import Engine, SamplingSettings
from dialrl.errors import HaltError, UsageError
from dialrl.rollout.dialogue import DialogueRun, Row, Setting, failed_rows
from dialrl.rollout.plan import DialoguePlan
from dialrl.rollout.sampler import Sampler, sampler_for
from dialrl.trajectory.rows import rows_to_table


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
        outcomes = await asyncio.gather(*(_guarded(plan, setting, sampler, attempt, gate) for plan in pending))
        results.update({plan.order: rows for plan, (rows, _) in zip(pending, outcomes, strict=True)})
        pending = [plan for plan, (_, failed) in zip(pending, outcomes, strict=True) if failed]
    return [results[plan.order] for plan in plans]


async def _guarded(
    plan: DialoguePlan,
    setting: Setting,
    sampler: Sampler,
    attempt: int,
    gate: AbstractAsyncContextManager[Any] | None,
) -> tuple[list[Row], bool]:
    run = DialogueRun(plan, setting, sampler, attempt)
    try:
        async with gate or nullcontext():
            rows = await run.run()
        rows_to_table(rows)  # what no file can hold, such as a lone surrogate, breaks this dialogue and no other
    except (HaltError, UsageError):  # settings that cannot be used are no dialogue's fault either
        raise
    except Exception as error:  # noqa: BLE001 - a broken dialogue is data, whatever its environment raised
        return failed_rows(run, error), True
    else:
        return rows, False
    finally:
        sampler.leave()
