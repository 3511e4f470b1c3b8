"""``dialrl demo-policy``: builds the tiny base policy of the demo world."""

from dataclasses import asdict
from typing import Literal

import typer

from dialrl.cli.app import Entry
from dialrl.cli.command import Call, add_command, option
from dialrl.summary import StageSummary


def register(app: typer.Typer, name: str, entry: Entry) -> None:
    add_command(
        app,
        name,
        run,
        help="Build the tiny base policy of the demo world (the one that ships) by supervised learning, and measure it:"
        " slot accuracy, acts, share of optimum. Minutes on one core.",
        output="required",
        extras=(
            option("seed", int, "Seed of weights and dialogues.", default=0),
            option("steps", int | None, "Training steps; default: those of the shipped policy."),
            option(
                "world",
                Literal["demo", "search"],
                "Whose policy: that of the demo world, or of search.",
                default="demo",
            ),
        ),
        panel=entry.panel,
    )


def run(call: Call) -> StageSummary:
    from dialrl.environment.demo.base_directory import refuse_base_policy
    from dialrl.environment.demo.base_policy import build_demo_policy

    refuse_base_policy(call.target, overwrite=call.overwrite)
    if call.extras["world"] == "search":
        return _search_policy(call)
    report = build_demo_policy(
        call.target,
        seed=call.extras["seed"],
        steps=call.extras["steps"],
        overwrite=call.overwrite,
        progress=call.progress,
    )
    return StageSummary("demo-policy", call.target, figures=asdict(report))


def _search_policy(call: Call) -> StageSummary:
    from dialrl.environment.search.world.base_policy import STEPS, build_search_policy

    report = build_search_policy(
        call.target,
        seed=call.extras["seed"],
        steps=call.extras["steps"] or STEPS,
        overwrite=call.overwrite,
        progress=call.progress,
    )
    return StageSummary("demo-policy", call.target, figures=asdict(report))
