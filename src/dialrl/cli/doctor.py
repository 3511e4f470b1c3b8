"""``dialrl doctor``: what works here (machine, software, endpoints, a policy), and what to do about the rest."""

import json
from pathlib import Path
from typing import Any

import typer

from dialrl.cli.app import Entry
from dialrl.cli.command import Call, add_command, option, switch


def register(app: typer.Typer, name: str, entry: Entry) -> None:
    add_command(
        app,
        name,
        run,
        help="Say what works here: versions, hardware, extras, endpoints, and a policy's template, log-probs and"
        " delivery. Exit code 1 when something that was named, or that the pipeline needs, fails.",
        extras=(
            option("config", Path | None, "Pipeline YAML: check what it needs."),
            option("policy", str | None, "Policy to look into: a directory, or demo-policy; none: the pipeline's."),
            option("engine", str | None, "Engine to draw with: hf, vllm, openai; none: the pipeline's, else hf."),
            option(
                "template_option",
                list[str] | None,
                "Variable of the chat template: enable_thinking=false, chat_template=plain ...; repeatable.",
            ),
            option("endpoint", list[str] | None, "Address of a model, up to and with /v1; repeatable."),
            option("model", str | None, "The model's name at --endpoint; none: the first it serves."),
            option("output", Path | None, "Where files would go; none: here.", flags=("-o", "--output")),
            switch("no_weights", "Load no weights: skip log-probs and delivery."),
        ),
        panel=entry.panel,
    )


def run(call: Call) -> None:
    from dialrl.cli.progress_view import drawn
    from dialrl.cli.train import pipeline_file
    from dialrl.doctor.stage import examine, subject_of

    given: dict[str, Any] = dict(call.extras)
    subject = subject_of(
        None if given["config"] is None else pipeline_file(given["config"]),
        given["policy"],
        given["endpoint"] or (),
        given["model"],
        given["output"],
        weights=not given["no_weights"],
        engine=given["engine"],
        template_options=given["template_option"] or (),
    )
    with drawn(quiet=call.quiet) as progress:  # gone before the findings are printed
        diagnosis = examine(subject, progress)
    if call.as_json:
        typer.echo(json.dumps(diagnosis.to_json(), ensure_ascii=False, allow_nan=False, default=str))
    else:
        from dialrl.cli.doctor_view import show_diagnosis

        show_diagnosis(diagnosis)
    if diagnosis.failed:
        raise typer.Exit(1)
