"""``dialrl report``."""

import typer

from dialrl.cli.app import Entry
from dialrl.cli.command import Call, add_command
from dialrl.report.config import ReportConfig
from dialrl.summary import StageSummary


def register(app: typer.Typer, name: str, entry: Entry) -> None:
    add_command(
        app,
        name,
        run,
        help="Write one page that shows runs and trajectory files: learning curves, credit, health, cost, and every"
        " dialogue with its grades, rewards and advantages. It needs no network.",
        config=ReportConfig,
        inputs="Run directories, trajectory files, folders of shards, or studies of dialrl lab.",
        output="required",
        panel=entry.panel,
    )


def run(call: Call) -> StageSummary:
    from dialrl.report.stage import report

    return report(call.inputs, call.target, call.config, overwrite=call.overwrite, progress=call.progress)
