"""``dialrl evaluate``: scores with intervals, one subcommand a kind."""

from pathlib import Path
from tempfile import TemporaryDirectory

import typer

from dialrl.cli.app import Entry
from dialrl.cli.command import Call, add_command, option
from dialrl.cli.evaluate_benchmarks import register_benchmarks
from dialrl.evaluate.config import DialogueConfig, EmpaConfig
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
    add_command(
        group,
        "dialogue",
        dialogue,
        help="Mean total reward of dialogues with its interval; in the demo world also the share of the optimum."
        " Stored dialogues, or those a policy holds on held-out scenarios first (--policy).",
        config=DialogueConfig,
        section="evaluate",
        inputs="Judged trajectory file, or a folder of shards.",
        inputs_optional=True,
        output="optional",
        resumable=True,
        extras=(option("policy", str | None, "Evaluate this policy; its dialogues go to the folder -o, if given."),),
        read_section=_evaluation_section,
    )
    register_benchmarks(group)
    app.add_typer(group, name=name, rich_help_panel=entry.panel)


def empa(call: Call) -> StageSummary:
    from dialrl.evaluate.empa import evaluate_empa

    return evaluate_empa(call.inputs, call.config, progress=call.progress)


def dialogue(call: Call) -> StageSummary:
    from dialrl.errors import UsageError
    from dialrl.evaluate.dialogue import evaluate_dialogues

    policy = call.extras["policy"]
    if (policy is None) == (not call.inputs):
        raise UsageError("dialrl evaluate dialogue takes either a judged file or --policy DIRECTORY.")
    if policy is None:
        return evaluate_dialogues(call.inputs, call.config, progress=call.progress)
    if call.output is not None:
        return _evaluate_policy(call, policy, call.output)
    with TemporaryDirectory(prefix="dialrl-") as folder:
        return _evaluate_policy(call, policy, Path(folder))


def _evaluate_policy(call: Call, policy: str, folder: Path) -> StageSummary:
    from dialrl.evaluate.dialogue import evaluate_policy
    from dialrl.rollout.policy import open_policy

    opened = open_policy(
        policy,
        engine=call.config.engine,
        device=call.config.device,
        engine_options=call.config.engine_options,
        endpoints=call.config.endpoints,
        template_options=call.config.template_options,
    )
    return evaluate_policy(
        opened, folder, call.config, overwrite=call.overwrite, resume=call.resume, progress=call.progress
    )


def _evaluation_section(file: Path) -> dict[str, object]:
    """An evaluation runs as the pipeline trains, unless its section says otherwise."""
    from dialrl.config import read_yaml
    from dialrl.train.config import evaluation_values

    return evaluation_values(read_yaml(file))
