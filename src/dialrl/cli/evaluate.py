"""``dialrl evaluate``: scores with intervals, one subcommand a kind."""

import typer

from dialrl.cli.app import Entry
from dialrl.cli.command import Call, add_command
from dialrl.evaluate.config import EmpaConfig
from dialrl.summary import StageSummary


def register(app: typer.Typer, name: str, entry: Entry) -> None:
    group = typer.Typer(help=entry.help, no_args_is_help=True, rich_markup_mode="rich")
    add_command(
        group,
        "empa",
        empa,
        help="EPM-Q and its nine indices of judged dialogues, with success rate and bootstrap intervals.",
        config=EmpaConfig,
        section="evaluate-empa",
        inputs="Judged trajectory file, or a folder of shards.",
    )
    app.add_typer(group, name=name, rich_help_panel=entry.panel)


def empa(call: Call) -> StageSummary:
    from dialrl.evaluate.empa import evaluate_empa

    return evaluate_empa(call.inputs, call.config, progress=call.progress)
