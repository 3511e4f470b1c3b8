"""The worlds in which the laboratory compares credit rules: each differs from ``standard`` in one thing."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from dialrl.config import nearest
from dialrl.errors import UsageError


@dataclass(frozen=True)
class Setting:
    """A world: what is special about it, and the fields of ``FastConfig`` that make it so."""

    name: str
    description: str
    changes: Mapping[str, Any]

    @property
    def turn_limit(self) -> int:
        return int(self.changes.get("turn_limit", 8))

    @property
    def extra_trust(self) -> int:
        return int(self.changes.get("extra_trust", 0))


SETTINGS: Mapping[str, Setting] = MappingProxyType(
    {
        each.name: each
        for each in (
            Setting("standard", "8 turns, an exact judge", {}),
            Setting(
                "delayed", "a question needs one more kind reply first: the payoff comes later", {"extra_trust": 1}
            ),
            Setting(
                "noisy",
                "a level is off by one step with probability 0.2, a judgement missing with 0.1",
                {"judge_noise": 0.2, "judge_missing": 0.1},
            ),
            Setting("long", "10 turns", {"turn_limit": 10}),
            Setting("short", "5 turns", {"turn_limit": 5}),
        )
    }
)


def setting(name: str) -> Setting:
    """The setting ``name``. Raises UsageError with the nearest known name."""
    if name not in SETTINGS:
        raise UsageError(f"Unknown setting '{name}'.{nearest(name, SETTINGS)} Known: {', '.join(SETTINGS)}.")
    return SETTINGS[name]
