"""``dialrl rollout``."""

import typer

from dialrl.cli.app import Entry
from dialrl.cli.command import Call, add_command, option
from dialrl.rollout.config import RolloutConfig
from dialrl.summary import StageSummary


def register(app: typer.Typer, name: str, entry: Entry) -> None:
    add_command(
        app,
        name,
        run,
        help="Let a policy talk with an environment; the dialogues become a trajectory file.",
        config=RolloutConfig,
        output="required",
        resumable=True,
        extras=(option("policy", str, "Policy directory, transformers directory, or demo-policy.", default=...),),
        panel=entry.panel,
    )


def run(call: Call) -> StageSummary:
    from dialrl.rollout.check import check_engine_here, check_rollout
    from dialrl.trajectory.parts import refuse_unfinished
    from dialrl.trajectory.writer import refuse_existing

    # What cannot work is refused before torch is imported, or a model loads.
    if not call.resume:
        refuse_existing(call.target, overwrite=call.overwrite)
        refuse_unfinished(call.target, overwrite=call.overwrite)
    check_rollout(call.config)
    check_engine_here(call.config)
    from dialrl.rollout.policy import open_policy
    from dialrl.rollout.stage import roll_out

    policy = open_policy(
        call.extras["policy"],
        engine=call.config.engine,
        device=call.config.device,
        engine_options=call.config.engine_options,
        endpoints=call.config.endpoints,
        template_options=call.config.template_options,
        continued=call.target if call.resume else None,
    )
    return roll_out(
        policy, call.target, call.config, overwrite=call.overwrite, resume=call.resume, progress=call.progress
    )
