"""``dialrl returns``."""

import typer

from dialrl.cli.app import Entry
from dialrl.cli.command import SLIM, Call, add_command
from dialrl.returns.config import ReturnsConfig
from dialrl.summary import StageSummary


def register(app: typer.Typer, name: str, entry: Entry) -> None:
    add_command(
        app,
        name,
        run,
        help="Compute rewards and discounted returns of a judged trajectory file.",
        config=ReturnsConfig,
        inputs="Judged trajectory file, or a folder of shards.",
        output="required",
        resumable=True,
        extras=(SLIM,),
        panel=entry.panel,
    )


def run(call: Call) -> StageSummary:
    from dialrl.returns.stage import compute_returns

    return compute_returns(
        call.inputs,
        call.target,
        call.config,
        overwrite=call.overwrite,
        resume=call.resume,
        slim=call.extras["slim"],
        progress=call.progress,
    )
