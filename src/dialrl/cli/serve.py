"""``dialrl serve``: a model of this machine at an OpenAI-compatible address, for the roles of a run."""

import json
import sys

import typer

from dialrl.cli.app import Entry
from dialrl.cli.command import Call, add_command, option
from dialrl.engine.serving.config import ServeConfig


def register(app: typer.Typer, name: str, entry: Entry) -> None:
    add_command(
        app,
        name,
        run,
        help="Serve a small model of this machine over HTTP, for actor, director, judge or policy: chats (JSON schema,"
        " tools) and completions (token ids, log-probs). On the loopback interface only; ends with Ctrl-C.",
        config=ServeConfig,
        extras=(option("policy", str, "Model: a directory, a hub name, or demo-policy.", default=...),),
        panel=entry.panel,
    )


def run(call: Call) -> None:
    from dialrl.cli.failure import say
    from dialrl.engine.serving.constraint import can_constrain
    from dialrl.engine.serving.opening import open_server

    server = open_server(call.extras["policy"], call.config)
    if not can_constrain():
        say("Answers are not held to JSON schemas: pip install 'dialrl[serve]' for a judge or a director.")
    names = " or ".join(server.service.names)
    typer.echo(
        json.dumps({"url": server.url, "models": server.service.names}) if call.as_json else f"{names}: {server.url}"
    )
    sys.stdout.flush()  # whoever started this may read the address from a pipe
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        say("Ended.")
    finally:
        server.stop()
