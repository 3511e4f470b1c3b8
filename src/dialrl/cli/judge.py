"""``dialrl judge``."""

from typing import Any

import typer

from dialrl.cli.app import Entry
from dialrl.cli.command import SLIM, Call, add_command, option
from dialrl.judge.config import JudgeConfig
from dialrl.summary import StageSummary


def register(app: typer.Typer, name: str, entry: Entry) -> None:
    add_command(
        app,
        name,
        run,
        help="Grade every turn of a trajectory file and replay the stop rules.",
        config=JudgeConfig,
        inputs="Trajectory file of a rollout, or a folder of shards.",
        output="required",
        resumable=True,
        extras=(
            SLIM,
            option(
                "kind", str | None, "As --judge: rubric, reference-kl, implicit-reward, information-gain, safety ..."
            ),
            option(
                "policy", str | None, "Judge information-gain: whose belief is scored, a policy's directory or name."
            ),
            option("targets", str | None, "Judge information-gain: answers, or needs that the cards keep hidden."),
        ),
        panel=entry.panel,
    )


def run(call: Call) -> StageSummary:
    from dialrl.judge.files import judge_files

    return judge_files(
        call.inputs,
        call.target,
        _config(call),
        policy=call.extras["policy"],
        overwrite=call.overwrite,
        resume=call.resume,
        slim=call.extras["slim"],
        progress=call.progress,
    )


def _config(call: Call) -> JudgeConfig:
    """With --kind and --targets; what was not given explicitly stays so, since that decides what is passed on."""
    config: JudgeConfig = call.config
    kind, targets = call.extras["kind"], call.extras["targets"]
    given: dict[str, Any] = {} if kind is None else {"judge": kind}
    if targets is not None:
        given["judge_options"] = {**config.judge_options, "targets": targets}
    return JudgeConfig(**{**config.model_dump(exclude_unset=True), **given}) if given else config
