"""``dialrl export``: dialogues become files that other tools read."""

import typer

from dialrl.cli.app import Entry
from dialrl.cli.command import PLACES, Call, add_command, option
from dialrl.summary import StageSummary
from dialrl.trajectory.exporters.config import ExportConfig, Target


def register(app: typer.Typer, name: str, entry: Entry) -> None:
    formats = "jsonl (import turns reads it back), trl, verl, sft or dpo."
    add_command(
        app,
        name,
        run,
        help="Write chosen dialogues for other tools: JSON lines, chat data, prompts, preference pairs.",
        config=ExportConfig,
        inputs="Trajectory file, or a folder of shards.",
        output="required",
        extras=(option("to", Target, formats, default=..., panel=PLACES),),
        panel=entry.panel,
    )


def run(call: Call) -> StageSummary:
    from dialrl.trajectory.exporters.stage import export

    return export(
        call.inputs, call.target, call.extras["to"], call.config, overwrite=call.overwrite, progress=call.progress
    )
