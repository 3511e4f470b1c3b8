"""The dialogues of a file as a list to choose from: one entry each, with what one would search, sort or filter by.

Streams a few columns, holds no text. Not here: how the list looks (``dialrl inspect --browse``).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from dialrl.trajectory.reader import TrajectoryFile
from dialrl.trajectory.rows import table_to_dialogues

Filter = Literal["all", "missing", "flags", "broken"]
Order = Literal["file", "advantage", "reward"]
_READ = (
    "group_id", "sample", "turn", "reward", "advantage", "judge_status", "flags", "end_reason", "outcome", "status",
    "finish_reason",
)  # fmt: skip


@dataclass(frozen=True)
class DialogueEntry:
    """One dialogue: ``reward`` is the sum of its known rewards, or its outcome; None where neither is known."""

    group: str
    sample: int
    turns: int
    reward: float | None
    largest_advantage: float | None
    missing: int
    flags: int
    ending: str
    is_broken: bool

    @property
    def dialogue_id(self) -> str:
        return f"{self.group}/{self.sample}"


@dataclass(frozen=True)
class GroupEntry:
    """One group: its dialogues, the mean and the spread (largest minus smallest) of their rewards."""

    group: str
    dialogues: int
    reward: float | None
    spread: float | None


def list_dialogues(source: TrajectoryFile) -> list[DialogueEntry]:
    """Every dialogue of the file, in order."""
    names = [name for name in _READ if name in source.names]
    return [_entry(rows) for table in source.groups(names) for rows in table_to_dialogues(table)]


def list_groups(dialogues: Iterable[DialogueEntry]) -> list[GroupEntry]:
    """The groups of these dialogues, in order."""
    members: dict[str, list[DialogueEntry]] = {}
    for dialogue in dialogues:
        members.setdefault(dialogue.group, []).append(dialogue)
    return [_group(name, inside) for name, inside in members.items()]


def chosen(dialogues: Iterable[DialogueEntry], filter: Filter = "all", order: Order = "file") -> list[DialogueEntry]:
    """Those that pass the filter, in that order: largest |advantage| or reward first, what is unknown last."""
    kept = [dialogue for dialogue in dialogues if _PASSES[filter](dialogue)]
    if order == "file":
        return kept
    return sorted(kept, key=lambda one: _unknown_last(one.largest_advantage if order == "advantage" else one.reward))


_PASSES: Mapping[Filter, Callable[[DialogueEntry], bool]] = {
    "all": lambda dialogue: True,
    "missing": lambda dialogue: dialogue.missing > 0,
    "flags": lambda dialogue: dialogue.flags > 0,
    "broken": lambda dialogue: dialogue.is_broken,
}


def _unknown_last(value: float | None) -> tuple[bool, float]:
    return (value is None, -(value or 0.0))


def _entry(rows: Sequence[Mapping[str, Any]]) -> DialogueEntry:
    first, last = rows[0], rows[-1]
    rewards = _known(rows, "reward")
    advantages = [abs(value) for value in _known(rows, "advantage")]
    return DialogueEntry(
        group=first["group_id"],
        sample=first["sample"],
        turns=len(rows),
        reward=sum(rewards) if rewards else last.get("outcome"),
        largest_advantage=max(advantages, default=None),
        missing=sum(row.get("judge_status") == "missing" for row in rows),
        flags=sum(len(row.get("flags") or ()) for row in rows),
        ending=last.get("end_reason") or "",
        is_broken=last.get("status") == "error" or any(row.get("finish_reason") == "length" for row in rows),
    )


def _known(rows: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    return [row[name] for row in rows if row.get(name) is not None]


def _group(name: str, inside: Sequence[DialogueEntry]) -> GroupEntry:
    rewards = [dialogue.reward for dialogue in inside if dialogue.reward is not None]
    mean = sum(rewards) / len(rewards) if rewards else None
    return GroupEntry(name, len(inside), mean, max(rewards) - min(rewards) if rewards else None)
