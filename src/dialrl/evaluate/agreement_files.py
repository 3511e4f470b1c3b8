"""The grades of several files on the same dialogues, laid side by side turn by turn. Not here: measures.

A turn is the same where (group_id, sample, turn) is; that it is the same *dialogue* is checked by its reply. A
judgement that is missing, or a turn that a file lacks, is NaN.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dialrl.errors import InputError
from dialrl.ragged import Floats
from dialrl.trajectory.agreement import agreed
from dialrl.trajectory.lineage import Lineage
from dialrl.trajectory.reader import TrajectoryFile

Key = tuple[str, int, int]
NEEDS = ("grades",)
MAY_USE = ("scenario_id", "increment", "judge_status", "grade_samples", "reply")


@dataclass(frozen=True)
class JudgedFile:
    """One file's rows by turn, its name, and how it was judged (None where its lineage does not say)."""

    name: str
    rows: Mapping[Key, Mapping[str, Any]]
    judge: Mapping[str, Any] | None

    @classmethod
    def open(cls, path: Path, name: str) -> "JudgedFile":
        source = TrajectoryFile.open(path, needs=NEEDS)
        wanted = ["group_id", "sample", "turn", *NEEDS, *(name for name in MAY_USE if name in source.names)]
        rows = {
            (row["group_id"], row["sample"], row["turn"]): row
            for table in source.groups(wanted)
            for row in table.to_pylist()
        }
        return cls(name, rows, _judge(source))


def _judge(source: TrajectoryFile) -> dict[str, Any] | None:
    """Judge and options, None where the lineage does not say. Raises InputError where parts had different ones."""
    judges = [(f"'{shard.path}'", _judge_of(shard.records) or {}) for shard in source.shards]
    return dict(agreed(judges, done="judged", advice="Give what each judge graded as a file of its own.")) or None


def _judge_of(lineage: Lineage) -> dict[str, Any] | None:
    """From the stage that asked it."""
    for stage in ("judge", "rollout"):
        record = lineage.record(stage)
        if record is not None and record.options.get("judge") is not None:
            return {"judge": record.options["judge"], "judge_options": record.options.get("judge_options")}
    return None


@dataclass(frozen=True)
class SideBySide:
    """K turns that at least two files have: scenario of each, and by file what it says of them.

    ``level_FK`` by indicator (NaN: missing); ``increment_FKA``, None where a file has no increments.
    """

    files: tuple[JudgedFile, ...]
    keys: tuple[Key, ...]
    scenarios: tuple[str, ...]
    level_FK: Mapping[str, Floats]
    increment_FKA: Floats | None
    counts: Mapping[str, int]


def side_by_side(files: Sequence[JudgedFile]) -> SideBySide:
    """Lay files side by side. Raises InputError when no turn is shared, or shared turns have different replies."""
    times = Counter(key for file in files for key in file.rows)
    keys = tuple(sorted(key for key, number in times.items() if number >= 2))
    if not keys:
        names = " and ".join(f"'{file.name}'" for file in files)
        raise InputError(f"{names} share no turn (group_id, sample, turn): these are not the same dialogues.")
    for key in keys:
        _check_reply(files, key)
    held = [[file.rows.get(key) for key in keys] for file in files]
    indicators = dict.fromkeys(
        grade["indicator"] for rows in held for row in rows if row is not None for grade in row["grades"] or ()
    )
    if not indicators:
        raise InputError("The turns that these files share have no grades: every judgement is missing.")
    first = [next(row for file in files if (row := file.rows.get(key)) is not None) for key in keys]
    return SideBySide(
        files=tuple(files),
        keys=keys,
        scenarios=tuple(row.get("scenario_id") or key[0] for row, key in zip(first, keys, strict=True)),
        level_FK={name: np.array([_levels(rows, name) for rows in held]) for name in indicators},
        increment_FKA=_increments(held),
        counts={
            "turns": len(keys),
            "dialogues": len({key[:2] for key in keys}),
            "turns_in_one_file_only": len(times) - len(keys),
            "turns_some_file_lacks": sum(times[key] < len(files) for key in keys),
            "missing_judgements": sum(row is not None and not row["grades"] for rows in held for row in rows),
        },
    )


def _check_reply(files: Sequence[JudgedFile], key: Key) -> None:
    said = {file.name: row["reply"] for file in files if (row := file.rows.get(key)) and row.get("reply") is not None}
    if len(set(said.values())) > 1:
        names = " and ".join(f"'{name}'" for name in said)
        raise InputError(
            f"{names} have different replies in dialogue '{key[0]}/{key[1]}', turn {key[2]}: agreement is about the"
            " same dialogues, graded twice."
        )


def _levels(rows: Sequence[Mapping[str, Any] | None], indicator: str) -> list[float]:
    return [np.nan if row is None else _level(row["grades"] or (), indicator) for row in rows]


def _level(grades: Sequence[Mapping[str, Any]], indicator: str) -> float:
    found = (grade["level"] for grade in grades if grade["indicator"] == indicator)
    level = next(found, None)
    return np.nan if level is None else float(level)


def _increments(held: Sequence[Sequence[Mapping[str, Any] | None]]) -> Floats | None:
    known = [row["increment"] for rows in held for row in rows if row is not None and row.get("increment") is not None]
    if not known:
        return None
    axes = len(known[0])
    if any(len(increment) != axes for increment in known):
        raise InputError(f"Increments have different numbers of axes ({axes} and others): the rubrics differ.")
    absent = [np.nan] * axes
    values = [[absent if row is None else row.get("increment") or absent for row in rows] for rows in held]
    return np.array(values, dtype=np.float64)


def sample_ratings(file: JudgedFile) -> dict[str, tuple[tuple[str, ...], Floats]]:
    """The first two samples of one judge behind the verdicts: by indicator the scenarios (U,) and ratings (2, U).

    Empty where no turn has two samples of the same judge.
    """
    found: dict[str, list[tuple[str, float, float]]] = {}
    for key, row in file.rows.items():
        drawn: dict[tuple[str, str], list[float]] = {}
        for sample in sorted(row.get("grade_samples") or (), key=lambda one: one["sample"]):
            level = np.nan if sample["level"] is None else float(sample["level"])
            drawn.setdefault((sample["judge"], sample["indicator"]), []).append(level)
        for (_, indicator), levels in drawn.items():
            if len(levels) >= 2:
                found.setdefault(indicator, []).append((row.get("scenario_id") or key[0], levels[0], levels[1]))
    return {
        name: (tuple(scenario for scenario, _, _ in pairs), np.array([[one, two] for _, one, two in pairs]).T)
        for name, pairs in found.items()
    }
