"""``dialrl evaluate judge``: a judge measured as an instrument, with exit code 1 where it does not pass its gate.

Registered by ``evaluate``. Not here: any measure.
"""

from dataclasses import replace
from pathlib import Path

import typer

from dialrl.cli.command import PLACES, Call, add_command, option
from dialrl.errors import UsageError
from dialrl.evaluate.judge_config import JudgeTrialConfig
from dialrl.summary import StageSummary


def register_judge(group: typer.Typer) -> None:
    """Add the command to the group ``dialrl evaluate``."""
    add_command(
        group,
        "judge",
        judge,
        help="A judge as an instrument: planted replies, orders to the judge, length, labels, test-retest; a gate"
        " (--require) with exit code 1. -o writes one row a grading, which train can require.",
        config=JudgeTrialConfig,
        section="evaluate-judge",
        inputs="Judged trajectory file, measured as well.",
        inputs_optional=True,
        output="optional",
        resumable=True,
        extras=(
            option("again", Path | None, "The same dialogues graded again by the same judge.", panel=PLACES),
            option("reference", Path | None, "The same dialogues graded rightly, as by people.", panel=PLACES),
            option("judge_model", str | None, "The model that grades (judge rubric)."),
        ),
    )


def judge(call: Call) -> StageSummary:
    from dialrl.evaluate.gate import unmet
    from dialrl.evaluate.judge_check import JudgedFiles, evaluate_judge

    if len(call.inputs) > 1 or (not call.inputs and (call.extras["again"] or call.extras["reference"])):
        raise UsageError(
            "Expected one judged file, and beside it --again FILE and --reference FILE where there are any."
        )
    named = {} if call.extras["judge_model"] is None else {"model": call.extras["judge_model"]}
    config = call.config.updated(judge_options={**call.config.judge_options, **named})
    files = JudgedFiles(call.inputs[0], call.extras["again"], call.extras["reference"]) if call.inputs else None
    summary = evaluate_judge(
        config,
        files,
        output=call.output,
        overwrite=call.overwrite,
        resume=call.resume,
        progress=call.progress,
    )
    if summary.figures["passed"]:
        return summary
    return replace(summary, failure=f"The judge does not pass: {', '.join(unmet(summary.figures['gate']))}.")
