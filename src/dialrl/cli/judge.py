"""``dialrl judge``."""

import typer

from dialrl.cli.app import Entry
from dialrl.cli.command import SLIM, Call, add_command
from dialrl.judge.config import JudgeConfig
from dialrl.summary import StageSummary


def register(app: typer.Typer, name: str, entry: Entry) -> None:
    add_command(
        app,
        name,
        run,
        help="Grade every turn of a trajectory file and replay the stop rules.",
        config=JudgeConfig,
        inputs="Trajectory file of a rollout, or a folder of shards.",
        output="required",
        resumable=True,
        extras=(SLIM,),
        panel=entry.panel,
    )


def run(call: Call) -> StageSummary:
    from dialrl.judge.stage import judge_dialogues

    return judge_dialogues(
        call.inputs,
        call.target,
        call.config,
        overwrite=call.overwrite,
        resume=call.resume,
        slim=call.extras["slim"],
        progress=call.progress,
    )
