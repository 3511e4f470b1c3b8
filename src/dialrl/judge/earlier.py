"""What an input holds already: whose grades, whether they may be passed on or completed, and which run it is of.

Several kinds of judge add to one file (grades, beliefs, kl, safety), each with a lineage record; only the record of the
grades is asked here. Not here: grading (``stage``).
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dialrl.config import differing_keys
from dialrl.errors import UsageError
from dialrl.judge.config import JudgeConfig
from dialrl.trajectory.agreement import common, rollouts
from dialrl.trajectory.lineage import Lineage, StageRecord
from dialrl.trajectory.reader import TrajectoryFile
from dialrl.trajectory.transform import finished_before

WITHOUT_GRADES = ("information-gain", "reference-kl", "implicit-reward", "safety", "none")
"""Kinds of judge whose columns stand beside the grades."""
_IDENTITY = ("judge", "judge_options", "stop")


def is_finished(
    output: Path,
    config: JudgeConfig,
    source: TrajectoryFile,
    made_from: Callable[[], Mapping[str, Any]],
    *,
    overwrite: bool,
) -> bool:
    """Whether ``output`` is complete, from the same input, settings, and texts (``made_from``: digests by name).

    Raises UsageError listing what differs, unless it is to be overwritten.
    """
    if not finished_before(output, stage="judge", config=config, source=source, overwrite=overwrite):
        return False
    record = TrajectoryFile.open(output).lineage.record("judge")
    before = None if record is None else record.details.get("judge_made_from")
    if before is None:  # grades passed on, or a judge that is code alone
        return True
    differing = differing_keys(before, made_from())
    if differing and not overwrite:
        raise UsageError(
            f"Cannot resume '{output}': it was graded with other texts: {'; '.join(differing)}. Use --overwrite, or"
            " another output."
        )
    return not differing


def iteration_of(source: TrajectoryFile) -> int:
    """The rollout's place in its run, which is part of every seed; 0 for dialogues from elsewhere or from several."""
    placed = [0 if record is None else int(record.options.get("iteration", 0)) for _, record in rollouts(source)]
    return common(placed) or 0


def _grades_record(lineage: Lineage) -> StageRecord | None:
    """The record of the judge command that wrote the grades of one file; None when there was none."""
    records = reversed(lineage.all_of("judge"))
    return next((record for record in records if record.options.get("judge") not in WITHOUT_GRADES), None)


def refuse_other_judge(source: TrajectoryFile, config: JudgeConfig) -> None:
    """Raise UsageError when settings given explicitly are not those the grades in the file were made with."""
    asked = config.semantic_values()
    keys = [key for key in _IDENTITY if key in config.model_fields_set]
    for shard in source.shards:
        for before, where in _graded_with(shard.records):
            differing = [f"{key}: {before.get(key)} -> {asked[key]}" for key in keys if before.get(key) != asked[key]]
            if differing:
                raise UsageError(
                    f"'{shard.path}' was graded {where}, by another judge: {'; '.join(differing)}. Grade it again with"
                    " --regrade, or leave these settings out to pass its grades on."
                )


def _graded_with(lineage: Lineage) -> list[tuple[Mapping[str, Any], str]]:
    """The settings behind the grades in a judged file, of each of its parts, and where they were made."""
    judged = _grades_record(lineage)
    if judged is not None:
        return [(judged.options, "by an earlier judge command")]
    live = [record for record in lineage.all_of("rollout") if record.options.get("grading") == "live"]
    return [(record.options, "in the rollout") for record in live] or [({}, "before it was imported")]


def check_retry(source: TrajectoryFile, config: JudgeConfig, *, is_judged: bool) -> None:
    """Raise UsageError where --retry-missing has nothing to go on, or would mix two judges."""
    if not config.retry_missing:
        return
    if config.regrade or not is_judged:
        fault = "with --regrade" if config.regrade else f"on {source.where}, which holds no judgements"
        raise UsageError(f"--retry-missing {fault}: it completes a judged file. Give the output of dialrl judge.")
    asked = config.semantic_values()
    for shard in source.shards:
        record = _grades_record(shard.records)
        before = {} if record is None else record.options
        differing = [
            f"{key}: {before[key]} -> {asked[key]}" for key in _IDENTITY if key in before and before[key] != asked[key]
        ]
        if differing:
            raise UsageError(
                f"'{shard.path}' was graded by another judge: {'; '.join(differing)}. Give the same judge, options and"
                " stop rules to complete it, or grade all of it again with --regrade."
            )
