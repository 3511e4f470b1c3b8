"""``dialrl import``: dialogues from elsewhere become trajectory files."""

import typer

from dialrl.cli.app import Entry
from dialrl.cli.command import Call, add_command
from dialrl.scenario.config import ImportQaConfig
from dialrl.summary import StageSummary
from dialrl.trajectory.importers.config import ImportEmpaConfig, ImportTurnsConfig


def register(app: typer.Typer, name: str, entry: Entry) -> None:
    group = typer.Typer(help=entry.help, no_args_is_help=True, rich_markup_mode="rich")
    add_command(
        group,
        "empa",
        import_empa_files,
        help="Published EMPA result files (one folder a model) as judged dialogues; sample = order of the folders.",
        config=ImportEmpaConfig,
        section="import-empa",
        inputs="Folders of script_*_result.json files.",
        output="required",
    )
    add_command(
        group,
        "turns",
        import_turn_lines,
        help="Logged dialogues, one JSON object a turn: group_id, sample, turn, and any other column.",
        config=ImportTurnsConfig,
        section="import-turns",
        inputs="JSON-lines file.",
        output="required",
    )
    add_command(
        group,
        "qa",
        import_questions,
        help="Questions with accepted answers (Parquet, JSON lines) for the environment search, as JSON lines.",
        config=ImportQaConfig,
        section="import-qa",
        inputs="Files of questions.",
        output="required",
    )
    app.add_typer(group, name=name, rich_help_panel=entry.panel)


def import_empa_files(call: Call) -> StageSummary:
    from dialrl.trajectory.importers.empa import import_empa

    return import_empa(call.inputs, call.target, call.config, overwrite=call.overwrite, progress=call.progress)


def import_turn_lines(call: Call) -> StageSummary:
    from dialrl.errors import UsageError
    from dialrl.trajectory.importers.turns import import_turns

    if len(call.inputs) != 1:
        raise UsageError(f"dialrl import turns takes one file; got {len(call.inputs)}.")
    return import_turns(call.inputs[0], call.target, call.config, overwrite=call.overwrite, progress=call.progress)


def import_questions(call: Call) -> StageSummary:
    from dialrl.scenario.import_questions import import_qa

    return import_qa(call.inputs, call.target, call.config, overwrite=call.overwrite)
