"""``dialrl evaluate empa --engine``: a model talks with the persons of the environment support, graded turn by turn.

The dialogues are a rollout under live grading, since stop rules and director need the state; what is scored is that
file. Not here: the sandbox (``dialrl.environment.support``), scores (``empa``).
"""

from pathlib import Path
from typing import Any

from dialrl.environment.support.environment import SupportEnvironment
from dialrl.errors import FailureThresholdError, InputError
from dialrl.evaluate.answer_store import check_failures, failure_warning
from dialrl.evaluate.config import EmpaConfig
from dialrl.evaluate.empa import evaluate_empa
from dialrl.evaluate.respondent import with_asking
from dialrl.evaluate.rolled_out import WHY, dialogues_place, rollout_of
from dialrl.progress import SILENT, Progress
from dialrl.rollout.config import RolloutConfig
from dialrl.rollout.stage import Policy, roll_out
from dialrl.summary import StageSummary
from dialrl.trajectory.writer import refuse_existing


def run_empa(
    policy: Policy,
    config: EmpaConfig,
    *,
    output: Path | None = None,
    overwrite: bool = False,
    resume: bool = False,
    progress: Progress = SILENT,
) -> StageSummary:
    """Let ``policy`` talk with the persons on the cards and score the dialogues, which lie beside ``output``.

    Raises UsageError without an actor or judge, HaltError (resumable) when an endpoint or engine breaks or the budget
    ends, FailureThresholdError when too many dialogues broke.
    """
    if output is not None and not resume:
        refuse_existing(output, overwrite=overwrite)
    rollout = empa_rollout(config)
    with dialogues_place(output) as dialogues:
        rolled = roll_out(policy, dialogues, rollout, overwrite=overwrite, resume=resume, progress=progress)
        failed, held = rolled.counts["failed_dialogues"], rolled.counts["dialogues"]
        try:
            summary = evaluate_empa(
                dialogues,
                config,
                output=output,
                overwrite=overwrite or resume,
                origin={"policy": policy.digest},
                progress=progress,
            )
        except InputError as error:
            if not failed:
                raise
            raise FailureThresholdError(f"{failed} of {held} dialogues failed. {error}") from error
    settings: dict[str, Any] = {"temperature": rollout.temperature, "max_turns": config.max_turns}
    names = {"environment_options": rollout.environment_options, "judge": config.judge}
    asked = with_asking(
        _with_reading(summary, config, failed),
        config,
        policy.digest,
        rolled.figures.get("calls", {}),
        settings | names | {"judge_options": config.judge_options},
    )
    _check_missing(asked, config)
    return check_failures(asked, failed, held, config.max_failed, advice=WHY)


def _check_missing(summary: StageSummary, config: EmpaConfig) -> None:
    """A missing judgement leaves the position where it was: a score of mostly such turns says nothing."""
    missing, turns = summary.counts["missing_judgements"], summary.counts["turns"]
    if missing > config.max_missing * turns:
        raise FailureThresholdError(
            f"{missing} of {turns} judgements are missing: more than --max-missing {config.max_missing:g}, so there is"
            " no score worth the name. See the column 'judge_error' of the dialogues, and try the judge alone: dialrl"
            " evaluate judge."
        )


def empa_rollout(config: EmpaConfig) -> RolloutConfig:
    """The rollout of an evaluation: every card of the split, or ``limit`` of them."""
    options = config.environment_options | ({} if config.cards is None else {"cards": config.cards})
    options |= {} if config.prompts is None else {"prompts": config.prompts}
    environment = SupportEnvironment(**options)
    _ = environment.actor  # refused here, not dialogue by dialogue
    cards = len(environment.scenarios(config.split))
    if not cards:
        raise InputError(f"There are no cards of the split '{config.split}' in {config.cards or 'the shipped cards'}.")
    return rollout_of(
        config,
        "support",
        options,
        split=config.split,
        groups=min(config.limit or cards, cards),
        samples=config.samples,
        max_turns=config.max_turns,
        grading="live",
        judge=config.judge,
        judge_options=config.judge_options,
        stop=config.stop,
    )


def _with_reading(summary: StageSummary, config: EmpaConfig, failed: int) -> StageSummary:
    """``summary`` with sentences on what its number is not."""
    found = [*failure_warning(failed)]
    if config.cards is None:
        found.append(
            "The cards are dialrl's own: the score compares with others on these cards, not with published ones."
        )
    if config.limit is not None:
        found.append(f"Only {summary.counts['scenarios']} cards were played: this is no EMPA score.")
    counts = {**summary.counts, **({"failed_dialogues": failed} if failed else {})}
    return StageSummary(summary.stage, summary.output, counts, summary.figures, (*found, *summary.warnings))
