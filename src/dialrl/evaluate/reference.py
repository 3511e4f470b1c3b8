"""Reference values of a world whose optimum is known: silent, myopic, optimum, clairvoyant, and the share of a score.

Only the demo world has them; other environments have none. The values are exact (dynamic programming) and take seconds
to compute, so those of the demo's two splits ship with the package; a test computes them again.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict
from functools import cache

from dialrl.environment.demo.planner import DemoReference
from dialrl.judge.earlier import WITHOUT_GRADES
from dialrl.resources import resource
from dialrl.trajectory.lineage import StageRecord


@cache
def reference_values(environment: str, split: str) -> DemoReference | None:
    """The values of ``environment`` on all scenarios of ``split``; None where no optimum is known."""
    if environment != "demo":
        return None
    shipped = json.loads(resource("demo-world/reference.json").read_text(encoding="utf-8"))
    return DemoReference(**shipped[split]) if split in shipped else None


def graded_as_reference(records: Iterable[StageRecord]) -> bool:
    """Whether the grades of a file with these ``records`` are those the reference values are made of.

    They are sums of what the demo world's own judge, free of faults, says. By another judge's grades, or by those of
    one with ``noise``, a score has no place between silence and the optimum. Not so either where nobody is on record.
    """
    kept = list(records)
    judged = [record.options for record in kept if record.stage == "judge" and not record.details.get("passed_on")]
    graded = [options for options in judged if options.get("judge") not in WITHOUT_GRADES]
    live = [record.options for record in kept if record.stage == "rollout" and record.options.get("grading") == "live"]
    return bool(found := graded or live) and all(
        options.get("judge") == "demo" and not any((options.get("judge_options") or {}).values()) for options in found
    )


def computed_reference() -> dict[str, dict[str, float]]:
    """The content of the shipped file, computed."""
    from dialrl.environment.demo.planner import solve
    from dialrl.environment.demo.scenario import SPLIT_SIZES, scenarios

    return {split: asdict(solve(scenarios(split))) for split in SPLIT_SIZES}
