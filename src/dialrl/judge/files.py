"""The stage ``judge`` for whichever judge is asked for: one that grades turns, or one that adds columns beside grades.

What ``dialrl judge`` and ``dialrl train`` call. Not here: any of them; each is imported only when asked for.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from dialrl.errors import UsageError
from dialrl.judge.config import JudgeConfig
from dialrl.progress import SILENT, Progress
from dialrl.summary import StageSummary

INFORMATION_GAIN, REFERENCE_KL, IMPLICIT_REWARD = "information-gain", "reference-kl", "implicit-reward"
SAFETY, NO_JUDGE = "safety", "none"


class JudgeStage(Protocol):
    """A judge as a function from files to a file."""

    def __call__(
        self,
        inputs: Path | Sequence[Path],
        output: Path,
        config: JudgeConfig,
        *,
        overwrite: bool = False,
        resume: bool = False,
        slim: bool = False,
        progress: Progress = SILENT,
    ) -> StageSummary: ...


def judge_files(
    inputs: Path | Sequence[Path],
    output: Path,
    config: JudgeConfig,
    *,
    policy: str | Path | None = None,
    overwrite: bool = False,
    resume: bool = False,
    slim: bool = False,
    progress: Progress = SILENT,
) -> StageSummary:
    """Judge ``inputs`` into ``output``; ``policy`` is whose belief the judge information-gain asks for.

    The kinds information-gain, reference-kl, implicit-reward and safety add columns beside the grades; none adds
    nothing; every other judge grades.

    Raises UsageError when that judge is given no policy, and whatever a judge raises.
    """
    stage = _stage(config, policy)
    return stage(inputs, output, config, overwrite=overwrite, resume=resume, slim=slim, progress=progress)


def check_judge(judge: str, options: Mapping[str, Any]) -> None:
    """Raise UsageError for a judge that there is none of, or options that it does not take; asks and loads nothing."""
    if judge in (NO_JUDGE, REFERENCE_KL, IMPLICIT_REWARD):
        return
    if judge == SAFETY:
        from dialrl.judge.safety_judge import SafetyJudge

        SafetyJudge(**options)
    elif judge == INFORMATION_GAIN:
        _check_belief(options)
    else:
        from dialrl.judge.registry import open_judge
        from dialrl.state.rubric import load_rubric

        load_rubric(open_judge(judge, options).rubric)


def _check_belief(options: Mapping[str, Any]) -> None:
    if options.get("targets") == "needs":
        from dialrl.judge.need_options import need_options

        need_options(options)
    else:
        from dialrl.judge.belief_options import belief_options

        belief_options(options)


def _stage(config: JudgeConfig, policy: str | Path | None) -> JudgeStage:
    if config.judge == NO_JUDGE:
        from dialrl.judge.no_judge import judge_nothing

        return judge_nothing
    if config.judge == REFERENCE_KL:
        from dialrl.judge.reference_kl import judge_reference_kl

        return judge_reference_kl
    if config.judge == IMPLICIT_REWARD:
        from dialrl.judge.implicit_reward import judge_implicit_reward

        return judge_implicit_reward
    if config.judge == SAFETY:
        from dialrl.judge.safety import judge_safety

        return judge_safety
    if config.judge == INFORMATION_GAIN:
        return _belief_stage(config, policy)
    from dialrl.judge.stage import judge_dialogues

    return judge_dialogues


def _belief_stage(config: JudgeConfig, policy: str | Path | None) -> JudgeStage:
    over_needs = config.judge_options.get("targets") == "needs"
    listener = (config.judge_options.get("listener") if over_needs else None) or policy
    if listener is None:
        raise UsageError(
            "The judge information-gain scores a policy's belief: name the policy with --policy DIRECTORY."
        )
    if over_needs:
        from dialrl.judge.information_gain_needs import judge_needs

        return partial(judge_needs, listener=listener)
    from dialrl.judge.information_gain import judge_beliefs

    return partial(judge_beliefs, policy=listener)
