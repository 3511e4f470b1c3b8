"""``dialrl update``."""

from pathlib import Path

import typer

from dialrl.cli.app import Entry
from dialrl.cli.command import Call, add_command, option
from dialrl.summary import StageSummary
from dialrl.update.config import UpdateConfig


def register(app: typer.Typer, name: str, entry: Entry) -> None:
    add_command(
        app,
        name,
        run,
        help="Update a policy on an advantage file; writes a new policy directory.",
        config=UpdateConfig,
        inputs="Advantage file, or a folder of shards.",
        output="required",
        resumable=True,
        extras=(
            option("policy", str, "The policy to update: a directory, or demo-policy.", default=...),
            option("total_steps", int | None, "Updates of the whole run, for the schedule.", flags=("--total-steps",)),
        ),
        panel=entry.panel,
    )


def run(call: Call) -> StageSummary:
    from dialrl.model.find import find_policy
    from dialrl.update.stage import update_policy

    policy: Path = find_policy(call.extras["policy"])
    return update_policy(
        call.inputs,
        policy,
        call.target,
        call.config,
        total_steps=call.extras["total_steps"],
        overwrite=call.overwrite,
        resume=call.resume,
        progress=call.progress,
    )
