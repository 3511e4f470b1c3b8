"""A scenario: what the dialogues of a group have in common. Not here: a support card (``support_card``)."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Scenario:
    """``card`` is the environment's own description of it (JSON values); the policy never sees it."""

    scenario_id: str
    split: str
    card: dict[str, Any] = field(default_factory=dict)
