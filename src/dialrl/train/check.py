"""Finds what cannot work in a pipeline before any work is done: names that do not exist, settings that contradict.

Each part is asked by its own means; nothing is loaded but what names stand for. Not here: types and bounds of single
values, which the configuration models check.
"""

from collections.abc import Callable
from pathlib import Path

from dialrl.advantage.presets import preset
from dialrl.engine import engine_factory
from dialrl.environment.registry import open_environment
from dialrl.errors import DialrlError, UsageError
from dialrl.evaluate.config import DialogueConfig
from dialrl.evaluate.judge_check import require_judge
from dialrl.judge.files import IMPLICIT_REWARD, INFORMATION_GAIN, NO_JUDGE, check_judge
from dialrl.judge.grading import JUDGE_COLUMNS
from dialrl.judge.safety_judge import SafetyJudge
from dialrl.model.find import find_policy
from dialrl.model.loading import model_directory
from dialrl.returns.channels import chosen_channels
from dialrl.rollout.check import check_rollout
from dialrl.rollout.config import RolloutConfig
from dialrl.rollout.plan import no_scenarios
from dialrl.train.config import PipelineConfig

BELIEFS = ("belief_before", "belief_after")


def check_pipeline(pipeline: PipelineConfig) -> None:
    """Raise the error that a stage would raise later, naming the section it belongs to."""
    checks: dict[str, Callable[[], object]] = {
        "policy": lambda: _policy(pipeline),
        "rollout": lambda: _rollout(pipeline),
        "judge": lambda: check_judge(pipeline.judge.judge, pipeline.judge.judge_options),
        "returns": lambda: _channels(pipeline),
        "advantage": lambda: _advantage(pipeline),
        "update": lambda: pipeline.update.check_total_steps(pipeline.train.iterations),
        "reward_model": lambda: _reward_model(pipeline),
        "evaluate": lambda: _evaluation(pipeline),
        "safety": lambda: _safety(pipeline),
        "train": lambda: _gate(pipeline),
    }
    for section, check in checks.items():
        try:
            check()
        except DialrlError as error:
            raise type(error)(f"Pipeline section '{section}': {error}") from error


def _policy(pipeline: PipelineConfig) -> None:
    if pipeline.rollout.engine not in ("hf", "vllm"):  # what an endpoint serves may be a mere name
        return
    place = find_policy(pipeline.policy)
    if isinstance(place, Path):
        model_directory(place)


def warnings_of(pipeline: PipelineConfig) -> tuple[str, ...]:
    """What can run and will hardly be meant, of a pipeline that was checked."""
    config = pipeline.advantage
    if pipeline.rollout.samples > 1 or config.terms:
        return ()
    alone = preset(config.estimator).group_of_one
    return (f"rollout.samples is 1: every group is one dialogue; the preset {config.estimator} says of such: {alone}",)


def _rollout(pipeline: PipelineConfig) -> None:
    config = pipeline.rollout
    check_rollout(config)
    _trainable(config)


def _trainable(config: RolloutConfig) -> None:
    """Replies are drawn in a way that ``update`` can train on."""
    for name, neutral in (("top_p", 1.0), ("top_k", 0), ("min_p", 0.0)):
        value = getattr(config, name)
        if value != neutral:
            raise UsageError(
                f"{name} is {value}; only replies drawn with {name} {neutral:g} can be trained on: which tokens were"
                " kept is not stored, so trainer and sampler would mean different distributions."
            )
    if config.temperature <= 0:
        raise UsageError("temperature is 0; greedy replies have no log-probs to train on. Set it above 0, such as 1.")


def _evaluation(pipeline: PipelineConfig) -> None:
    config = pipeline.evaluate
    if not pipeline.train.evaluate_every:
        return
    engine_factory(config.engine)
    if config.judge not in (INFORMATION_GAIN, NO_JUDGE):  # as evaluate does, which then leaves grading out
        check_judge(config.judge, config.judge_options)
    _scenarios(config)


def _channels(pipeline: PipelineConfig) -> None:
    """The channels exist, the judge gives what they read, and a policy is named that the channel kl compares with."""
    chosen = chosen_channels(pipeline.returns)
    for channel in chosen:
        lacking = sorted(set(channel.needs) & _not_made(pipeline))
        if lacking:
            raise UsageError(
                f"the channel {channel.name} reads {', '.join(lacking)}, which the judge '{pipeline.judge.judge}' does"
                " not give. Name another judge in the section judge, or another channel in returns.reward."
            )
    if "kl" in [channel.name for channel in chosen] and pipeline.judge.reference is None:
        raise UsageError("the channel kl compares with a frozen policy: name it in the section judge, key reference.")
    if pipeline.judge.reference is not None:
        find_policy(pipeline.judge.reference)
    made = pipeline.reward_model is not None or pipeline.judge.judge == IMPLICIT_REWARD
    if "implicit" in [channel.name for channel in chosen] and not made:
        raise UsageError("the channel implicit reads what a reward model gives: add a section reward_model.")


def _reward_model(pipeline: PipelineConfig) -> None:
    if pipeline.reward_model is not None:
        find_policy(pipeline.policy)
        pipeline.reward_model.update.check_total_steps(pipeline.train.iterations)


def _not_made(pipeline: PipelineConfig) -> set[str]:
    """Columns of judges that no judge of this pipeline makes."""
    judge, live = pipeline.judge.judge, pipeline.rollout.grading == "live"
    grades = set() if live or judge not in (INFORMATION_GAIN, NO_JUDGE) else set(JUDGE_COLUMNS)
    return grades | (set() if judge == INFORMATION_GAIN else set(BELIEFS))


def _safety(pipeline: PipelineConfig) -> None:
    """The judge of safety can be made from its options."""
    if pipeline.safety is not None:
        SafetyJudge(**pipeline.safety.judge_options)


def _gate(pipeline: PipelineConfig) -> None:
    """The judge whose grades become rewards has passed the gate, where that is required."""
    if pipeline.train.require_judge is not None:
        graded_by = pipeline.rollout if pipeline.rollout.grading == "live" else pipeline.judge
        require_judge(Path(pipeline.train.require_judge), graded_by.judge, graded_by.judge_options)


def _scenarios(config: DialogueConfig) -> None:
    """The section's own environment has scenarios in its split."""
    if not open_environment(config.environment, config.environment_options).scenarios(config.split):
        raise UsageError(no_scenarios(config.environment, config.split, config.environment_options))


def _advantage(pipeline: PipelineConfig) -> None:
    """The preset exists, and its discount is the one the returns are made with (or is given)."""
    config = pipeline.advantage
    if config.terms:
        return
    published = preset(config.estimator).gamma
    if config.gamma is None and published is not None and published != pipeline.returns.gamma:
        raise UsageError(
            f"preset '{config.estimator}' was published with gamma {published}; returns.gamma is"
            f" {pipeline.returns.gamma}. Set advantage.gamma to say which one the terms use, or change returns.gamma."
        )
