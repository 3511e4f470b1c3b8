"""``dialrl advantage``."""

import json

import typer

from dialrl.advantage.config import AdvantageConfig
from dialrl.cli.app import Entry
from dialrl.cli.command import SLIM, Call, add_command, switch
from dialrl.errors import UsageError
from dialrl.summary import StageSummary


def register(app: typer.Typer, name: str, entry: Entry) -> None:
    add_command(
        app,
        name,
        run,
        help="Compute advantages of a returns file by a preset; --list explains the presets.",
        config=AdvantageConfig,
        inputs="Returns file, or a folder of shards.",
        inputs_optional=True,
        output="optional",
        resumable=True,
        extras=(switch("list", "Print the presets: who is compared with whom, and the bias to know."), SLIM),
        panel=entry.panel,
    )


def run(call: Call) -> StageSummary | None:
    if call.extras["list"]:
        _list(as_json=call.as_json)
        return None
    if not call.inputs or call.output is None:
        raise UsageError("dialrl advantage needs an input and an output: dialrl advantage RETURNS.parquet -o OUTPUT")
    from dialrl.advantage.stage import compute_advantages

    return compute_advantages(
        call.inputs,
        call.output,
        call.config,
        overwrite=call.overwrite,
        resume=call.resume,
        slim=call.extras["slim"],
        progress=call.progress,
    )


def _list(*, as_json: bool) -> None:
    from dialrl.advantage.presets import describe_presets

    presets = describe_presets()
    if as_json:
        typer.echo(json.dumps({"presets": presets}))
        return
    for preset in presets:
        typer.echo(f"{preset['name']}\n{preset['description']}\n")
