"""Running async work from anywhere, finding shipped files, and what a summary says as JSON."""

import asyncio
from pathlib import Path

import pytest

from dialrl.concurrency import run_async
from dialrl.errors import MissingInputError
from dialrl.progress import SILENT
from dialrl.resources import resource
from dialrl.summary import StageSummary


async def answer():
    await asyncio.sleep(0)
    return 42


async def fail():
    raise ZeroDivisionError


def test_async_work_runs_from_ordinary_code_and_inside_a_running_loop():
    async def notebook():
        return run_async(answer())

    assert run_async(answer()) == 42
    assert asyncio.run(notebook()) == 42
    with pytest.raises(ZeroDivisionError):
        run_async(fail())


def test_a_shipped_file_is_found():
    assert resource("rubrics/support.yaml").is_file()


def test_a_shipped_file_that_is_not_there_is_told_with_both_places():
    with pytest.raises(MissingInputError, match=r"'no-such-file' was not found in .*_data.* nor .*data"):
        resource("no-such-file")


def test_silence_takes_every_report():
    SILENT.start("rollout", 3, "dialogues")
    SILENT.advance(2, loss=0.5)
    SILENT.message("done")


def test_a_summary_has_its_figures_on_top_and_counts_and_warnings_by_name():
    summary = StageSummary("returns", Path("a.parquet"), {"turns": 3}, {"mean": 0.5}, ("Mind the gap.",))
    assert summary.to_json() == {
        "stage": "returns",
        "output": "a.parquet",
        "mean": 0.5,
        "counts": {"turns": 3},
        "warnings": ["Mind the gap."],
    }
    assert StageSummary("inspect").to_json()["output"] is None
