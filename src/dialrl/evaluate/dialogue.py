"""``dialrl evaluate dialogue``: how good dialogues are, stored ones or ones a policy holds on held-out scenarios.

A policy is rolled out and judged by the stages' own functions; the files stay where ``-o`` says. The score is the sum
of judge rewards, in the demo world also a share of the optimum; without positions it is the outcome (search). Not here:
the published benchmarks.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from dialrl.endpoint.settings import CallsConfig
from dialrl.environment.demo.planner import DemoReference
from dialrl.environment.registry import open_environment
from dialrl.errors import InputError
from dialrl.evaluate.config import DialogueConfig
from dialrl.evaluate.dialogue_scores import NEEDS, DialogueScores, numbered, share_interval
from dialrl.evaluate.outcome_scores import OUTCOME_NEEDS, OutcomeScores, outcome_columns
from dialrl.evaluate.reference import graded_as_reference, reference_values
from dialrl.judge.config import JudgeConfig
from dialrl.judge.files import INFORMATION_GAIN, NO_JUDGE
from dialrl.judge.stage import judge_dialogues
from dialrl.progress import SILENT, Progress
from dialrl.rollout.config import RolloutConfig
from dialrl.rollout.stage import Policy, roll_out
from dialrl.summary import StageSummary
from dialrl.trajectory.agreement import common, rollouts
from dialrl.trajectory.reader import TrajectoryFile


def evaluate_dialogues(
    inputs: Path | str | Sequence[Path | str], config: DialogueConfig | None = None, *, progress: Progress = SILENT
) -> StageSummary:
    """Score judged dialogues. Raises InputError for a file without grades, or with no dialogue that can be scored."""
    config = config or DialogueConfig()
    source, scores, columns = _opened(inputs, config)
    progress.start("evaluate dialogue", source.num_rows, "turns")
    environments: set[str] = set()
    for table in source.groups([*columns, "environment"], config.batch_rows):
        environments.update(table["environment"].unique().to_pylist())
        scores.add(table.drop_columns(["environment"]))
        progress.advance(table.num_rows)
    if not scores.total_D:
        raise InputError(
            f"No dialogue of {source.where} can be scored: {scores.counts['broken_dialogues']} broke,"
            f" {scores.counts['unjudged_dialogues']} have no judgement. See: dialrl inspect {source.shards[0].path}"
        )
    return _summary(source, scores, config, environments)


def _opened(
    inputs: Path | str | Sequence[Path | str], config: DialogueConfig
) -> tuple[TrajectoryFile, DialogueScores, list[str]]:
    """The file, what scores it, and the columns to read: by outcome where there are no positions."""
    source = TrajectoryFile.open(inputs)
    if _by_outcome(source):
        return source, OutcomeScores(config.until, config.stop), outcome_columns(source.names)
    source = TrajectoryFile.open(inputs, stage="judge", needs=NEEDS)
    return source, DialogueScores(config.until, config.stop), numbered(source.names)


def _by_outcome(source: TrajectoryFile) -> bool:
    """Whether the outcome is all there is: a file of the environment search, or one judged by beliefs alone."""
    if "position" in source.names or not set(OUTCOME_NEEDS) <= set(source.names):
        return False
    return "belief_after" in source.names or _environments(source) == {"search"}


def _environments(source: TrajectoryFile) -> set[str]:
    if "environment" not in source.names:
        return set()
    return set(source.read(["environment"])["environment"].unique().to_pylist())


def evaluate_policy(
    policy: Policy,
    folder: Path,
    config: DialogueConfig,
    *,
    overwrite: bool = False,
    resume: bool = False,
    progress: Progress = SILENT,
) -> StageSummary:
    """Roll ``policy`` out on ``config.split``, judge and score it; the two trajectory files go to ``folder``."""
    rollout, judged = folder / "rollout.parquet", folder / "judge.parquet"
    roll_out(policy, rollout, rollout_config(config), overwrite=overwrite, resume=resume, progress=progress)
    if config.judge in (INFORMATION_GAIN, NO_JUDGE):  # gains train; an evaluation asks how good the answers are
        return evaluate_dialogues(rollout, config, progress=progress)
    judge = JudgeConfig(
        judge=config.judge,
        judge_options=config.judge_options,
        environment_options=config.environment_options,
        stop=config.stop,
        seed=config.seed,
        call_timeout_seconds=config.call_timeout_seconds,
        **{name: getattr(config, name) for name in CallsConfig.model_fields},
    )
    judge_dialogues(rollout, judged, judge, overwrite=overwrite, resume=resume, slim=True, progress=progress)
    return evaluate_dialogues(judged, config, progress=progress)


def rollout_config(config: DialogueConfig) -> RolloutConfig:
    """The rollout that an evaluation makes: every scenario once, or as many as asked for."""
    environment = open_environment(config.environment, config.environment_options)
    groups = config.groups or len(environment.scenarios(config.split))
    shared = set(RolloutConfig.model_fields) & set(DialogueConfig.model_fields) - {"groups"}
    return RolloutConfig(groups=groups, **{name: getattr(config, name) for name in shared})


def _summary(
    source: TrajectoryFile, scores: DialogueScores, config: DialogueConfig, environments: set[str]
) -> StageSummary:
    figures = scores.figures(config)
    figures.update(_shares(figures, source, environments))
    figures["settings"] = {"until": config.until, "resamples": config.resamples, "seed": config.seed}
    counts = {
        "dialogues": len(scores.total_D),
        "scenarios": len(set(scores.scenarios)),
        "turns": sum(scores.turns_D),
        **{name: scores.counts[name] for name in ("missing_judgements", "broken_dialogues", "unjudged_dialogues")},
    }
    return StageSummary("evaluate dialogue", None, counts, figures)


def _shares(figures: dict[str, Any], source: TrajectoryFile, environments: set[str]) -> dict[str, Any]:
    """Share of optimum with its interval and the reference values, where they are known for such grades."""
    reference = _reference(source, environments)
    if reference is None:
        return {}
    named = {name: getattr(reference, name) for name in ("silent", "myopic", "optimum", "clairvoyant")}
    return {
        "share": reference.share(figures["score"]),
        "share_interval": share_interval(figures["intervals"]["score"], reference.share),
        "reference": {name: {"score": value, "share": reference.share(value)} for name, value in named.items()},
    }


def _share_of(score: float, source: TrajectoryFile, environments: set[str]) -> dict[str, float]:
    reference = _reference(source, environments)
    return {} if reference is None else {"share": reference.share(score)}


def _reference(source: TrajectoryFile, environments: set[str]) -> DemoReference | None:
    split = common(None if record is None else record.options.get("split") for _, record in rollouts(source))
    if len(environments) != 1 or split is None:
        return None
    if not all(graded_as_reference(shard.records.records) for shard in source.shards):
        return None
    return reference_values(next(iter(environments)), str(split))


def mean_scores(judged: Path, *, until: Literal["stop", "end"]) -> dict[str, Any]:
    """Mean total reward (or outcome), turns and share of one training file: no intervals, made every iteration."""
    source, scores, columns = _opened(judged, DialogueConfig(until=until))
    for table in source.groups(columns):
        scores.add(table)
    if not scores.total_D:
        return {"score": None, "mean_turns": None}
    score = sum(scores.total_D) / len(scores.total_D)
    means = {"score": score, "mean_turns": sum(scores.turns_D) / len(scores.turns_D)}
    return {**means, **_share_of(score, source, _environments(source))}
