"""Settings of ``dialrl judge``."""

from typing import Any

from dialrl.config import operational, semantic
from dialrl.endpoint.settings import CallsConfig
from dialrl.judge.implicit_options import ImplicitOptions
from dialrl.judge.reference_options import ReferenceOptions
from dialrl.state.rules import StopRules


class JudgeConfig(CallsConfig):
    """Who grades, and which stop rules are replayed over the grades."""

    judge: str = semantic("demo", help="The judge; none: the outcome alone counts.")
    judge_options: dict[str, Any] = semantic({}, help="Options of the judge.")
    environment_options: dict[str, Any] = semantic({}, help="Options of the environment the scenarios come from.")
    stop: StopRules = semantic(StopRules(), help="Stop rules replayed over the grades (column stop_turn).")
    regrade: bool = semantic(False, help="Grade again what was graded in the rollout; else those grades are passed on.")
    retry_missing: bool = semantic(
        False, help="Ask again for the missing judgements of a judged file; all others are kept as they are."
    )
    reference: str | None = semantic(
        None, help="Kinds reference-kl and implicit-reward: the frozen policy, a directory or a name."
    )
    reference_options: ReferenceOptions = semantic(ReferenceOptions(), help="How the reference is computed.")
    reward_model: str | None = operational(
        None, help="Kind implicit-reward: the reward model, a directory or a name (its digest is compared)."
    )
    implicit_options: ImplicitOptions = semantic(
        ImplicitOptions(), help="Kind implicit-reward: how tokens become rewards."
    )
    seed: int = semantic(0, help="Seed of a judge that draws.")
    max_missing: float = operational(
        0.3, help="Share of missing judgements above which the command exits with 1 (the file is written).", ge=0, le=1
    )
    concurrency: int = operational(64, help="Dialogues graded side by side.", ge=1)
    call_timeout_seconds: float = operational(120.0, help="Time limit of one judgement.", gt=0)
    batch_rows: int = operational(2048, help="Turns graded between two points of resumption.", ge=1)
