"""The stage ``judge`` for whichever judge is asked for: one that grades turns, or the policy's own belief.

What ``dialrl judge`` and ``dialrl train`` call. Not here: either of them.
"""

from collections.abc import Sequence
from pathlib import Path

from dialrl.errors import UsageError
from dialrl.judge.config import JudgeConfig
from dialrl.progress import SILENT, Progress
from dialrl.summary import StageSummary

INFORMATION_GAIN, REFERENCE_KL, SAFETY, NO_JUDGE = "information-gain", "reference-kl", "safety", "none"


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

    The kinds information-gain, reference-kl and safety add columns beside the grades; none adds nothing; every other
    judge grades.

    Raises UsageError when that judge is given no policy, and whatever a judge raises.
    """
    if config.judge == NO_JUDGE:
        from dialrl.judge.no_judge import judge_nothing

        return judge_nothing(inputs, output, config, overwrite=overwrite, resume=resume, slim=slim, progress=progress)
    if config.judge == REFERENCE_KL:
        from dialrl.judge.reference_kl import judge_reference_kl

        return judge_reference_kl(
            inputs, output, config, overwrite=overwrite, resume=resume, slim=slim, progress=progress
        )
    if config.judge == SAFETY:
        from dialrl.judge.safety import judge_safety

        return judge_safety(inputs, output, config, overwrite=overwrite, resume=resume, slim=slim, progress=progress)
    if config.judge != INFORMATION_GAIN:
        from dialrl.judge.stage import judge_dialogues

        return judge_dialogues(inputs, output, config, overwrite=overwrite, resume=resume, slim=slim, progress=progress)
    over_needs = config.judge_options.get("targets") == "needs"
    policy = (config.judge_options.get("listener") if over_needs else None) or policy
    if policy is None:
        raise UsageError(
            "The judge information-gain scores a policy's belief: name the policy with --policy DIRECTORY."
        )
    if over_needs:
        from dialrl.judge.information_gain_needs import judge_needs

        return judge_needs(
            inputs, output, config, listener=policy, overwrite=overwrite, resume=resume, slim=slim, progress=progress
        )
    from dialrl.judge.information_gain import judge_beliefs

    return judge_beliefs(
        inputs, output, config, policy=policy, overwrite=overwrite, resume=resume, slim=slim, progress=progress
    )
