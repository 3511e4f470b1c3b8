"""What the parts of one input say of themselves, and whether they agree.

An input may be several files, or one that was joined from several; each part was rolled out, judged and scored by a
command of its own. Whoever reads a setting from the lineage asks here, so that no part speaks for the others. Not here:
which settings matter (the stages).
"""

from collections.abc import Iterable, Mapping
from typing import Any

from dialrl.config import differing_keys
from dialrl.errors import InputError
from dialrl.trajectory.lineage import StageRecord
from dialrl.trajectory.reader import TrajectoryFile

Stated = tuple[str, Mapping[str, Any]]
"""Settings, and the file that says so, as messages name it."""


def stage_records(source: TrajectoryFile, stage: str) -> list[tuple[str, StageRecord]]:
    """All records of ``stage`` with the file each stands in."""
    return [(f"'{shard.path}'", record) for shard in source.shards for record in shard.records.all_of(stage)]


def rollouts(source: TrajectoryFile) -> list[tuple[str, StageRecord | None]]:
    """The rollout behind each part of ``source`` with the file; None for dialogues from elsewhere (imports)."""
    found: list[tuple[str, StageRecord | None]] = []
    for shard in source.shards:
        for record in shard.records.origins or (None,):
            is_rollout = record is not None and record.stage == "rollout"
            found.append((f"'{shard.path}'", record if is_rollout else None))
    return found


def agreed(found: Iterable[Stated], *, done: str, advice: str) -> Mapping[str, Any]:
    """The settings that all parts state alike; empty when there are none.

    Raises InputError naming two files and what differs: "'b' was ``done`` otherwise than 'a'" and ``advice``.
    """
    parts = iter(found)
    where, first = next(parts, ("", {}))
    for place, settings in parts:
        differing = differing_keys(dict(first), dict(settings))
        if differing:
            others = f"{place} was {done} otherwise than {where}"
            raise InputError(
                f"{f'Parts of {where} were {done} differently' if place == where else others}: {'; '.join(differing)}."
                f" {advice}"
            )
    return first


def common(values: Iterable[Any]) -> Any | None:
    """The value that all parts have; None where they differ or there are none."""
    seen = list(values)
    return seen[0] if seen and all(value == seen[0] for value in seen) else None
