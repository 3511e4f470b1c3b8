"""The command line's table of contents: which commands there are, and how the one that was asked for is loaded.

Only the module of the command being run (or explained) is imported; for the overview every command is a name and a
sentence. So ``dialrl --help`` costs little more than typer itself. Not here: any command.
"""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module

import typer


@dataclass(frozen=True)
class Entry:
    """One command: the module under ``dialrl.cli`` that registers it, its panel in the overview, and its sentence."""

    module: str
    panel: str
    help: str


SPIN_COUNT = "3000"  # turns that a waiting OpenMP thread spins before it sleeps
PIPELINE, DATA, LOOK = "The pipeline, stage by stage", "Data in and out", "Look and learn"

COMMANDS: dict[str, Entry] = {
    "rollout": Entry("rollout", PIPELINE, "Let a policy talk: scenarios in, a trajectory file out."),
    "judge": Entry("judge", PIPELINE, "Grade every turn of a trajectory file."),
    "returns": Entry("returns", PIPELINE, "Rewards and discounted returns from grades."),
    "advantage": Entry("advantage", PIPELINE, "Advantages from returns, by preset."),
    "update": Entry("update", PIPELINE, "One policy-gradient update: a new policy directory."),
    "evaluate": Entry(
        "evaluate", PIPELINE, "Scores with intervals: empa, dialogue, safety, eqbench, emobench, sage, qa; agreement."
    ),
    "train": Entry("train", PIPELINE, "The loop over all stages, from a pipeline YAML."),
    "import": Entry("importing", DATA, "Bring dialogues in: empa, turns; questions: qa."),
    "export": Entry("exporting", DATA, "Take dialogues out: jsonl, trl, verl, sft, dpo."),
    "report": Entry("report", LOOK, "One page, without a network, that shows runs and files: charts, every dialogue."),
    "compare": Entry("compare", LOOK, "Policies or advantage presets side by side, with intervals."),
    "inspect": Entry("inspecting", LOOK, "What is in a trajectory file."),
    "scenarios": Entry("scenarios", LOOK, "Scenarios of an environment, support cards: list, show, validate, split."),
    "demo-policy": Entry("demo_policy", LOOK, "Build the tiny base policy of the demo world."),
    "serve": Entry("serve", LOOK, "A small model of this machine behind an address, for the roles of a run."),
    "doctor": Entry("doctor", LOOK, "What works here and what does not: versions, GPU, endpoints, a policy."),
    "lab": Entry("lab", LOOK, "Credit rules compared in the demo world: one run, whole studies, exact values."),
}


def build(asked: str | None) -> typer.Typer:
    """The application with the command ``asked`` loaded and all others as one line each."""
    app = typer.Typer(
        name="dialrl",
        help="Reinforcement learning of multi-turn dialogue policies, in stages that read and write Parquet files.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    for name, entry in COMMANDS.items():
        if name == asked:
            import_module(f"dialrl.cli.{entry.module}").register(app, name, entry)
        else:
            app.command(name, help=entry.help, rich_help_panel=entry.panel)(_placeholder)
    return app


def _version(asked: bool) -> None:
    if asked:
        from dialrl import __version__

        typer.echo(f"dialrl {__version__}")
        raise typer.Exit


def _root(
    version: bool = typer.Option(
        False, "--version", help="Print the version and exit.", is_eager=True, callback=_version
    ),
) -> None:
    pass


def _placeholder() -> None:
    """Stands for a command that was not asked for."""


def asked_command(arguments: Sequence[str]) -> str | None:
    """The command named in ``arguments``, or None."""
    return next((argument for argument in arguments if not argument.startswith("-")), None)


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the ``dialrl`` command."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    # pydantic looks through every installed package for plugins of its own at its first model: 0.03 s of each start.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    # A thread that waits for another spins for milliseconds by default. With other work on the cores that made a step
    # of two threads 1.7 times as long as one of one thread; so short a spin costs nothing where they are free.
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPIN_COUNT)
    from dialrl.cli.failure import reported

    with reported(debug="--debug" in given):
        build(asked_command(given))(given, prog_name="dialrl")
