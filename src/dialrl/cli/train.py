"""``dialrl train``: the loop, with a live table of its iterations."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from dialrl.cli.app import Entry
from dialrl.cli.command import Call, add_command, option, resolved_text, show_preview, switch
from dialrl.summary import StageSummary
from dialrl.train.tracking import Tracker


def register(app: typer.Typer, name: str, entry: Entry) -> None:
    add_command(
        app,
        name,
        run,
        help="Train a policy as a pipeline YAML says: rollout, judge, returns, advantage, update, again and again.",
        inputs="Pipeline YAML.",
        output="optional",
        resumable=True,
        extras=(
            option("set", list[str] | None, "section.key=value, such as train.iterations=10; repeatable."),
            option("track", Tracker | None, "Where metrics go too (each an extra of that name)."),
            switch("print_start", "Print the directory of the policy the pipeline starts from, and stop."),
            switch("dry_run", "Print the resolved pipeline and stop."),
        ),
        view=_view,
        panel=entry.panel,
    )


def run(call: Call) -> StageSummary | None:
    from dialrl.cli.train_view import IterationTable
    from dialrl.errors import UsageError
    from dialrl.train.check import check_pipeline, warnings_of
    from dialrl.train.config import read_pipeline
    from dialrl.train.machine import missing_here
    from dialrl.train.run_directory import RunDirectory

    if len(call.inputs) != 1:
        raise UsageError(f"dialrl train takes one pipeline YAML; got {len(call.inputs)}.")
    tracked = (f"train.track={call.extras['track']}",) if call.extras["track"] else ()
    pipeline = read_pipeline(pipeline_file(call.inputs[0]), _changes([*(call.extras["set"] or ()), *tracked]))
    if call.extras["dry_run"]:
        check_pipeline(pipeline)
        typer.echo(resolved_text(pipeline, as_json=call.as_json))
        if not call.as_json:
            show_preview([*missing_here(pipeline), *warnings_of(pipeline), *_memory(pipeline)])
        return None
    if call.extras["print_start"]:
        from dialrl.model.find import find_policy

        typer.echo(find_policy(pipeline.policy))
        return None
    if call.output is None:
        raise UsageError("dialrl train writes a run directory; say where: -o runs/NAME")
    check_pipeline(pipeline)  # here and in train: what is refused is refused before torch is loaded
    RunDirectory(call.output).check(pipeline.on_its_devices(), overwrite=call.overwrite, resume=call.resume)
    for line in warnings_of(pipeline):
        call.progress.message(f"warning: {line}")
    from dialrl.train.loop import train

    with IterationTable(pipeline.train.iterations, quiet=call.quiet) as table:
        return train(
            pipeline,
            call.output,
            overwrite=call.overwrite,
            resume=call.resume,
            progress=table.progress,
            watch=table.add,
        )


def _memory(pipeline: Any) -> Sequence[str]:
    from dialrl.errors import DialrlError
    from dialrl.model.find import find_policy
    from dialrl.update.memory import memory_lines

    try:
        return memory_lines(pipeline.update, Path(find_policy(pipeline.policy)))
    except DialrlError as error:
        return (f"memory of the update: not known ({error})",)


def pipeline_file(given: Path) -> Path:
    """The file as given, or the shipped pipeline of that name (``demo.yaml``)."""
    from dialrl.errors import MissingInputError
    from dialrl.resources import resource

    if given.exists() or given.parent != Path():
        return given
    try:
        return resource(given.name, kind="pipelines")
    except MissingInputError:
        raise MissingInputError(
            f"'{given}' is neither a file nor a shipped pipeline. Give the path of a pipeline YAML, or a name such as"
            " demo.yaml."
        ) from None


def _changes(assignments: Sequence[str]) -> dict[str, Any]:
    from dialrl.config import assign

    changes: dict[str, Any] = {}
    for assignment in assignments:
        assign(changes, assignment)
    return changes


def _view(summary: StageSummary) -> None:
    from dialrl.cli.train_view import show_run

    show_run(summary)
