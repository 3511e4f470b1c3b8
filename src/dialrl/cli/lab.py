"""``dialrl lab``: credit rules compared in the demo world."""

import time
from dataclasses import asdict
from typing import Any

import typer

from dialrl.cli.app import Entry
from dialrl.cli.command import Call, add_command
from dialrl.cli.lab_view import show_study
from dialrl.lab.config import ConfirmConfig, FastConfig, StudyConfig
from dialrl.lab.studies_config import CostConfig, NoiseConfig, VarianceConfig
from dialrl.summary import StageSummary


def register(app: typer.Typer, name: str, entry: Entry) -> None:
    group = typer.Typer(help=entry.help, no_args_is_help=True, rich_markup_mode="rich")
    add_command(
        group,
        "fast",
        fast,
        help="One run of the fast tier: the demo world, its judge, the files and the credit stages with a softmax"
        " policy over reply classes in place of a language model. Seconds; --no-files: the same in memory, about one.",
        config=FastConfig,
        section="lab-fast",
        output="required",
    )
    add_command(
        group,
        "study",
        study,
        help="Presets compared in several settings: step sizes tuned on seeds of their own, then fresh seeds. Goes on"
        " where it was killed; writes lab.parquet, which dialrl report reads.",
        config=StudyConfig,
        section="lab-study",
        output="required",
        resumable=True,
        view=show_study,
    )
    add_command(
        group,
        "confirm",
        confirm,
        help="The confirmation tier: a few presets again with the tiny language model, every run one of dialrl train.",
        config=ConfirmConfig,
        section="lab-confirm",
        output="required",
        resumable=True,
        view=show_study,
    )
    add_command(
        group,
        "noise",
        noise,
        help="The judge-noise study: presets under judges that err at random, miss judgements, or are biased; measured"
        " by true rewards. A table like that of study.",
        config=NoiseConfig,
        section="lab-noise",
        output="required",
        resumable=True,
        view=show_study,
    )
    add_command(
        group,
        "variance",
        variance,
        help="The variance study: the gradient of each preset over many batches of the same dialogues, against the"
        " exact gradient of the demo world.",
        config=VarianceConfig,
        section="lab-variance",
        output="required",
        resumable=True,
    )
    add_command(
        group,
        "cost",
        cost,
        help="The cost table: several replies a state, compared with each other, against credit from whole dialogues,"
        " at equal policy turns an update.",
        config=CostConfig,
        section="lab-cost",
        output="required",
        resumable=True,
    )
    add_command(
        group,
        "reference",
        reference,
        help="The demo world's exact values by dynamic programming: silent, myopic, optimum, clairvoyant.",
    )
    app.add_typer(group, name=name, rich_help_panel=entry.panel)


def fast(call: Call) -> StageSummary:
    from dialrl.lab.fast import run_fast
    from dialrl.lab.runs import RunKey, RunResult
    from dialrl.lab.table import write_table
    from dialrl.trajectory.writer import refuse_existing

    if call.target.exists() and any(call.target.iterdir()):
        refuse_existing(call.target, overwrite=False)
    began, config = time.monotonic(), call.config
    result = run_fast(call.target, config, progress=call.progress)
    key = RunKey("fast", "one run", config.preset, config.learning_rate, config.seed, config.semantic_values())
    seconds = round(time.monotonic() - began, 3)
    write_table(call.target / "lab.parquet", [("final", RunResult(key, result.curve, result.reference, seconds))])
    curve = {f"iteration {point.iteration}": _point(asdict(point)) for point in result.curve}
    shares = {name: result.reference.share(value) for name, value in asdict(result.reference).items()}
    return StageSummary(
        "lab fast",
        call.target,
        counts={"iterations": call.config.iterations},
        figures={"preset": call.config.preset, "share": result.curve[-1].share, "curve": curve, "reference": shares},
    )


def study(call: Call) -> StageSummary:
    from dialrl.lab.study import run_study

    return run_study(call.target, call.config, overwrite=call.overwrite, resume=call.resume, progress=call.progress)


def confirm(call: Call) -> StageSummary:
    from dialrl.lab.confirm import run_confirm

    return run_confirm(call.target, call.config, overwrite=call.overwrite, resume=call.resume, progress=call.progress)


def noise(call: Call) -> StageSummary:
    from dialrl.lab.studies_noise import run_noise

    return run_noise(call.target, call.config, overwrite=call.overwrite, resume=call.resume, progress=call.progress)


def variance(call: Call) -> StageSummary:
    from dialrl.lab.studies_variance import run_variance

    return run_variance(call.target, call.config, overwrite=call.overwrite, resume=call.resume, progress=call.progress)


def cost(call: Call) -> StageSummary:
    from dialrl.lab.studies_cost import run_cost

    return run_cost(call.target, call.config, overwrite=call.overwrite, resume=call.resume, progress=call.progress)


def _point(point: dict[str, Any]) -> dict[str, Any]:
    return {name: point[name] for name in ("value", "share", "revealed", "entropy", "gradient_norm")}


def reference(call: Call) -> StageSummary:
    from dialrl.environment.demo.planner import solve
    from dialrl.environment.demo.scenario import SPLIT_SIZES, scenarios

    figures: dict[str, object] = {}
    for split in SPLIT_SIZES:
        values = solve(scenarios(split))
        figures[split] = {
            name: {"score": value, "share": values.share(value)} for name, value in asdict(values).items()
        }
    return StageSummary("lab reference", figures=figures)
