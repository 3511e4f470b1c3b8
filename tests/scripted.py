"""Scripted parts under the name "scripted", found as an installed package's would be. Not a test module."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.trajectory_files import Row, read

from dialrl import plugins
from dialrl.rollout.config import RolloutConfig
from dialrl.rollout.stage import Policy, roll_out
from dialrl.seeds import seed_for
from dialrl.summary import StageSummary
from dialrl.testing import ScriptedEnvironment, ScriptedJudge, scripted_policy

Part = Callable[..., Any]
LINES = ("Hello.", "Go on.", "And then?")


def register(monkeypatch: pytest.MonkeyPatch, *, environment: Any = None, judge: Any = None) -> None:
    """Make "scripted" the name of the fakes, or of these very objects, whose calls can then be counted."""
    made = {
        "dialrl.environments": ScriptedEnvironment if environment is None else lambda **options: environment,
        "dialrl.judges": ScriptedJudge if judge is None else lambda **options: judge,
    }

    def entry_points(group: str) -> list[SimpleNamespace]:
        if group not in made:
            return []
        return [SimpleNamespace(name="scripted", value="fakes", dist=None, load=lambda: made[group])]

    monkeypatch.setattr(plugins, "entry_points", entry_points)
    monkeypatch.setattr(plugins, "_loaded", {})


def names(count: int) -> list[str]:
    return [f"scenario-{number}" for number in range(count)]


def settings(groups: int = 2, samples: int = 2, **options: Any) -> RolloutConfig:
    """Scripted scenarios, each met once, unless ``options`` say otherwise."""
    if "environment" not in options:
        options.setdefault("environment_options", {"lines": list(LINES), "scenarios": names(groups)})
    return RolloutConfig(**{"environment": "scripted", "groups": groups, "samples": samples, **options})


def replies_by_seed(request: Any) -> str:
    """A reply that tells the seed it was drawn with."""
    return f"reply {request.seed % 1000}"


def rolled_out(
    path: Path, config: RolloutConfig, policy: Policy | None = None, **options: Any
) -> tuple[list[Row], StageSummary]:
    """The rows of a rollout and what it says of itself."""
    summary = roll_out(policy or scripted_policy(replies_by_seed), path, config, **options)
    return read(path), summary


def user_seeds(group: str, sample: int, *, attempts: int = 2) -> list[int]:
    """Seeds by which a dialogue's user is opened: one a try."""
    return [seed_for(0, 0, group, sample, 0, "user", attempt) for attempt in range(attempts)]


def dialogues(rows: list[Row]) -> dict[str, list[Row]]:
    """Rows by dialogue id."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["dialogue_id"], []).append(row)
    return found
