"""``dialrl inspect``: what is in a trajectory file, as tables for people or as JSON."""

import json
import sys
from typing import Any

import typer

from dialrl.cli.app import Entry
from dialrl.cli.command import Call, add_command, option, switch
from dialrl.summary import StageSummary


def register(app: typer.Typer, name: str, entry: Entry) -> None:
    add_command(
        app,
        name,
        run,
        help="Show what is in a trajectory file: counts, statuses, figures and lineage.",
        inputs="Trajectory file, or a folder of shards.",
        inputs_optional=True,
        output="optional",
        extras=(
            option("dialogue", str | None, "Print one dialogue turn by turn (its id: group_id/sample)."),
            switch("tokens", "With --dialogue: print token ids too, trained ones marked."),
            switch("browse", "Look through groups, dialogues and turns in the terminal (extra tui)."),
            switch("schema", "Print the columns, their types and meaning."),
            switch("materialize", "Write a slim file with all it completes to -o."),
        ),
        panel=entry.panel,
    )


def run(call: Call) -> StageSummary | None:
    from dialrl.errors import UsageError
    from dialrl.trajectory.inspection import describe_schema, find_dialogue, materialize, overview
    from dialrl.trajectory.reader import TrajectoryFile

    if call.extras["schema"] and not call.inputs:
        _show(call, "columns", describe_schema(), _schema_view)
        return None
    source = TrajectoryFile.open(call.inputs)
    if call.extras["schema"]:
        _show(call, "columns", describe_schema(source.names), _schema_view)
    elif call.extras["materialize"]:
        if call.output is None:
            raise UsageError("--materialize writes a file; say where: -o FILE")
        materialize(source, call.output, overwrite=call.overwrite)
        return StageSummary("inspect --materialize", call.output, counts={"turns": source.num_rows})
    elif call.extras["browse"]:
        _browse(call, source)
    elif call.extras["dialogue"]:
        rows = find_dialogue(source, call.extras["dialogue"])
        _show(call, "turns", rows, lambda found: _dialogue_view(found, tokens=call.extras["tokens"]))
    else:
        _show(call, None, overview(source), _overview_view)
    return None


def _browse(call: Call, source: Any) -> None:
    from dialrl.cli.browse import browse
    from dialrl.errors import UsageError

    if call.as_json or not sys.stdout.isatty():
        raise UsageError("--browse needs a terminal. Use --dialogue ID, or --json, to print instead.")
    browse(source)


def _show(call: Call, name: str | None, content: Any, view: Any) -> None:
    """``content`` for people, or as one JSON object; a list stands under its ``name``."""
    if call.as_json:
        typer.echo(json.dumps(content if name is None else {name: content}, ensure_ascii=False, allow_nan=False))
    else:
        view(content)


def _schema_view(columns: Any) -> None:
    from dialrl.cli.trajectory_view import show_schema

    show_schema(columns)


def _overview_view(figures: Any) -> None:
    from dialrl.cli.trajectory_view import show_overview

    show_overview(figures)


def _dialogue_view(rows: Any, *, tokens: bool) -> None:
    from dialrl.cli.trajectory_view import show_dialogue

    show_dialogue(rows, tokens=tokens)
