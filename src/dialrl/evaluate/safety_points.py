"""Reads stored checks of safety: one *point* a file, or an iteration of a run, in order.

A dialogue is what the checks say of its replies and its worst one; a group is what a trend is made of. Not here: shares
and intervals (``safety``).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dialrl.errors import InputError
from dialrl.state.model import zone_distance
from dialrl.trajectory.reader import TrajectoryFile
from dialrl.trajectory.rows import table_to_dialogues
from dialrl.trajectory.schema import KEYS

Row = dict[str, Any]
CHECKS = ("crisis", "safety", "safety_level", "safety_status")
_FURTHEST = ("advantage.parquet", "returns.parquet", "judge.parquet", "rollout.parquet")
_REWARDS = ("status", "reward_filled", "reward", "deficit", "position", "stop_turn", "outcome")


@dataclass(frozen=True)
class Finding:
    """The worst of a dialogue: at which turn, what, and the evidence."""

    turn: int
    level: int
    indicator: str
    evidence: str | None
    reasoning: str | None


@dataclass(frozen=True)
class CheckedDialogue:
    """``levels``: the lowest level of each checked reply, None where the check is missing. ``worst``: the first."""

    point: str
    place: int
    group: str
    sample: int
    scenario: str | None
    crisis: str
    levels: tuple[int | None, ...]
    worst: Finding | None

    @property
    def name(self) -> str:
        return f"{self.group}/{self.sample}"

    @property
    def known(self) -> list[int]:
        """Levels of the replies whose check is known."""
        return [level for level in self.levels if level is not None]


@dataclass(frozen=True)
class Point:
    """What was checked together. ``rewards``: the total reward of the known dialogues of each group, checked or not."""

    name: str
    place: int
    dialogues: tuple[CheckedDialogue, ...]
    rewards: dict[str, tuple[float, ...]]


def read_points(inputs: Sequence[Path], batch_rows: int) -> list[Point]:
    """The points of files (a folder of shards is one) and run directories, in the order given.

    Raises InputError for a file without checks, or a run in which no iteration has them.
    """
    places = [place for path in inputs for place in _places(path)]
    names = [name for name, _, _ in places]
    unique = len(set(names)) == len(names)
    return [
        read_point(name if unique else f"{name} ({number})", number, checks, rewards, batch_rows)
        for number, (name, checks, rewards) in enumerate(places)
    ]


def _places(path: Path) -> Iterator[tuple[str, Path, Path]]:
    """Name, file with the checks, and file with the rewards of each point behind ``path``."""
    if not (path / "pipeline.yaml").is_file():
        yield path.name.removesuffix(".parquet"), path, path
        return
    found = list(_iterations(path))
    if not found:
        raise InputError(
            f"No iteration of the run '{path}' was checked for safety. Train with a section safety in the pipeline, or"
            f" check a file of it: dialrl judge --kind safety {path}/0000/judge.parquet -o {path}/0000/safety.parquet"
        )
    yield from found


def _iterations(run: Path) -> Iterator[tuple[str, Path, Path]]:
    folders = sorted((folder for folder in run.iterdir() if folder.name.isdigit()), key=lambda one: int(one.name))
    for folder in folders:
        furthest = next((folder / name for name in _FURTHEST if (folder / name).is_file()), None)
        checks = folder / "safety.parquet"
        if furthest is not None and not checks.is_file() and "safety_status" in TrajectoryFile.open(furthest).names:
            checks = furthest
        if checks.is_file():
            yield folder.name, checks, furthest or checks


def read_point(name: str, place: int, checks: Path, rewards: Path, batch_rows: int) -> Point:
    """The point whose checks stand in one file and whose rewards in another, or the same. InputError without checks."""
    source = TrajectoryFile.open(checks)
    if "safety_status" not in source.names:
        raise InputError(
            f"{source.where} holds no checks of safety. Run first: dialrl judge --kind safety {checks} -o OUTPUT"
        )
    wanted = [name for name in ("scenario_id", *CHECKS) if name in source.names]
    dialogues = tuple(
        checked
        for table in source.groups([*KEYS, *wanted], batch_rows)
        for rows in table_to_dialogues(table)
        if (checked := _checked(name, place, rows)) is not None
    )
    return Point(name, place, dialogues, _rewards(TrajectoryFile.open(rewards), batch_rows))


def _checked(point: str, place: int, rows: Sequence[Row]) -> CheckedDialogue | None:
    """The dialogue ``rows``; None where none of its replies was to be checked."""
    asked = [row for row in rows if row["safety_status"] is not None]
    if not asked:
        return None
    first = asked[0]
    levels = tuple(row["safety_level"] for row in asked)
    known = [row for row in asked if row["safety_level"] is not None]
    worst = min(known, key=lambda row: (row["safety_level"], row["turn"]), default=None)
    return CheckedDialogue(
        point, place, first["group_id"], first["sample"], first.get("scenario_id"), first["crisis"] or "none", levels,
        None if worst is None else _finding(worst),
    )  # fmt: skip


def _finding(row: Row) -> Finding:
    grade = min(row["safety"], key=lambda grade: grade["level"])
    return Finding(row["turn"], row["safety_level"], grade["indicator"], grade["evidence"], grade["reasoning"])


def _rewards(source: TrajectoryFile, batch_rows: int) -> dict[str, tuple[float, ...]]:
    found: dict[str, list[float]] = {}
    columns = [name for name in _REWARDS if name in source.names]
    for table in source.groups([*KEYS, *columns], batch_rows):
        for rows in table_to_dialogues(table):
            total = total_reward(rows)
            if total is not None:
                found.setdefault(rows[0]["group_id"], []).append(total)
    return {group: tuple(totals) for group, totals in found.items()}


def total_reward(rows: Sequence[Row]) -> float | None:
    """A dialogue's reward: the sum of ``reward`` where the file has it, else d(P_0) - d(P_T), else the outcome.

    Up to the stop; None for a dialogue that failed or whose reward is not known.
    """
    if rows[-1].get("status") == "error":
        return None
    stop = rows[0].get("stop_turn")
    counted = [row for row in rows if stop is None or row["turn"] <= stop]
    filled = [row.get("reward_filled", row.get("reward")) for row in counted]
    if any("reward" in row for row in counted):
        known = [value for value in filled if value is not None]
        return float(sum(known)) if known else None
    if counted[-1].get("position") is not None and counted[0].get("deficit") is not None:
        before, after = zone_distance([counted[0]["deficit"], counted[-1]["position"]])
        return float(before - after)
    outcome = rows[-1].get("outcome")
    return None if outcome is None else float(outcome)
