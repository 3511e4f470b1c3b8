"""``dialrl update``."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from dialrl.cli.app import Entry
from dialrl.cli.command import Call, add_command, option
from dialrl.config import read_yaml_section
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
            option(
                "total_steps",
                int | None,
                "Updates of the whole run, for the schedule; default: train.iterations of --config.",
                flags=("--total-steps",),
            ),
        ),
        panel=entry.panel,
        preview=_memory,
    )


def _memory(config: UpdateConfig, values: Mapping[str, Any]) -> Sequence[str]:
    from dialrl.model.find import find_policy
    from dialrl.update.memory import memory_lines

    if values["policy"] is None:
        return ("memory of the update: name the policy with --policy",)
    return memory_lines(config, Path(find_policy(values["policy"])))


def run(call: Call) -> StageSummary | None:
    from dialrl.model.find import find_policy
    from dialrl.model.torchrun import started
    from dialrl.update.stage import update_policy

    total_steps = call.extras["total_steps"]
    if total_steps is None and call.config_file is not None:
        total_steps = read_yaml_section(call.config_file, "train").get("iterations")
    policy = find_policy(call.extras["policy"])
    summary = update_policy(
        call.inputs,
        policy,
        call.target,
        call.config,
        total_steps=total_steps,
        overwrite=call.overwrite,
        resume=call.resume,
        progress=call.progress,
    )
    return summary if started().rank == 0 else None  # torchrun's first process speaks for all
