"""``dialrl judge``."""

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
            option("kind", str | None, "The same as --judge: rubric, reference-kl, information-gain, safety, demo ..."),
            option(
                "policy", str | None, "Judge information-gain: whose belief is scored, a policy's directory or name."
            ),
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
    """The configuration with --kind; what was not given explicitly stays so, since that decides what is passed on."""
    config: JudgeConfig = call.config
    kind = call.extras["kind"]
    return config if kind is None else JudgeConfig(**{**config.model_dump(exclude_unset=True), "judge": kind})
