"""``dialrl compare``."""

import typer

from dialrl.cli.app import Entry
from dialrl.cli.command import Call, add_command
from dialrl.evaluate.compare_config import CompareConfig
from dialrl.summary import StageSummary


def register(app: typer.Typer, name: str, entry: Entry) -> None:
    add_command(
        app,
        name,
        run,
        help="Compare policies on the same scenarios (judged files, or results of one benchmark), or advantage presets"
        " on the same returns (advantage files). The first file is the one the others are held against.",
        config=CompareConfig,
        inputs="Two files or more, all of one kind.",
        panel=entry.panel,
    )


def run(call: Call) -> StageSummary:
    from dialrl.evaluate.compare import compare

    return compare(call.inputs, call.config, progress=call.progress)
