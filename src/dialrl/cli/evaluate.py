"""``dialrl evaluate``: scores with intervals, one subcommand a kind."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import typer

from dialrl.cli.app import Entry
from dialrl.cli.command import Call, add_command, option
from dialrl.cli.evaluate_benchmarks import MODEL, asked_config, opened, register_benchmarks
from dialrl.cli.evaluate_judge import register_judge
from dialrl.errors import UsageError
from dialrl.evaluate.config import DialogueConfig, EmpaConfig
from dialrl.evaluate.safety_config import SafetyConfig
from dialrl.summary import StageSummary


def register(app: typer.Typer, name: str, entry: Entry) -> None:
    group = typer.Typer(help=entry.help, no_args_is_help=True, rich_markup_mode="rich")
    add_command(
        group,
        "empa",
        empa,
        help="EPM-Q and its nine indices of judged dialogues, with success rate and bootstrap intervals. Stored"
        " dialogues, or those a model holds first (--engine); -o writes one row a dialogue.",
        config=EmpaConfig,
        section="evaluate-empa",
        inputs="Judged trajectory file, or a folder of shards.",
        inputs_optional=True,
        output="optional",
        resumable=True,
        extras=(
            MODEL,
            option("actor", str | None, "The model that plays the persons, by its name at its endpoint."),
            option("director", str | None, "The model that directs them; none: no director."),
            option("judge_model", str | None, "The model that grades (judge rubric)."),
        ),
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
        extras=(
            option(
                "policy",
                str | None,
                "Evaluate this policy; its dialogues go to the folder -o, if given.",
                flags=("--policy", "--model"),
            ),
            option("base_url", str | None, "Address of the models: short for endpoints.default.base_urls."),
            option("limit", int | None, "The same as --groups."),
        ),
        read_section=_evaluation_section,
    )
    add_command(
        group,
        "safety",
        safety,
        help="Share of safe replies in crisis dialogues, by kind of crisis, and which dialogues failed. Of several"
        " files in order, or a run: whether reward rises while safety falls (exit code 1).",
        config=SafetyConfig,
        section="evaluate-safety",
        inputs="Files that dialrl judge --kind safety wrote, in the order of training, or a run directory.",
        view=_safety_view,
    )
    register_benchmarks(group)
    register_judge(group)
    app.add_typer(group, name=name, rich_help_panel=entry.panel)


def empa(call: Call) -> StageSummary:
    config = asked_config(call, None)
    if config.engine is None:
        from dialrl.evaluate.empa import evaluate_empa

        if not call.inputs:
            raise UsageError(
                "Missing: INPUT..., a judged file; or run a model: --engine openai --base-url URL --model NAME --actor"
                " NAME --judge-model NAME."
            )
        replace = call.overwrite or call.resume
        return evaluate_empa(call.inputs, config, output=call.output, overwrite=replace, progress=call.progress)
    from dialrl.evaluate.empa_live import run_empa

    with opened(call, config) as policy:
        return run_empa(
            policy,
            _with_roles(call, config),
            output=call.output,
            overwrite=call.overwrite,
            resume=call.resume,
            progress=call.progress,
        )


def _with_roles(call: Call, config: Any) -> Any:
    """The configuration with the models that the options name."""
    options = dict(config.environment_options)
    for role in ("actor", "director"):
        if call.extras[role] is not None:
            options[role] = {**(options.get(role) or {}), "model": call.extras[role]}
    graded = {} if call.extras["judge_model"] is None else {"model": call.extras["judge_model"]}
    return config.updated(environment_options=options, judge_options={**config.judge_options, **graded})


def safety(call: Call) -> StageSummary:
    from dialrl.evaluate.safety import evaluate_safety

    return evaluate_safety(call.inputs, call.config, progress=call.progress)


def _safety_view(summary: StageSummary) -> None:
    from dialrl.cli.safety_view import show_safety

    show_safety(summary)


def dialogue(call: Call) -> StageSummary:
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

    config = _reached(call)
    held_by = open_policy(
        policy,
        engine=config.engine,
        device=config.device,
        engine_options=config.engine_options,
        endpoints=config.endpoints,
        template_options=config.template_options,
        continued=folder / "rollout.parquet" if call.resume else None,
    )
    try:
        return evaluate_policy(
            held_by, folder, config, overwrite=call.overwrite, resume=call.resume, progress=call.progress
        )
    finally:
        held_by.engine.close()


def _reached(call: Call) -> Any:
    """The configuration with --base-url as the default address, and --limit as its number of scenarios."""
    from dialrl.evaluate.asking_config import with_address

    config = call.config.updated(endpoints=with_address(call.config.endpoints, call.extras["base_url"]))
    return config if call.extras["limit"] is None else config.updated(groups=call.extras["limit"])


def _evaluation_section(file: Path) -> dict[str, object]:
    """An evaluation runs as the pipeline trains, unless its section says otherwise."""
    from dialrl.config import read_yaml
    from dialrl.train.config import evaluation_values

    return evaluation_values(read_yaml(file))
