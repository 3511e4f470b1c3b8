"""Reference values of a world whose optimum is known: silent, myopic, optimum, clairvoyant, and the share of a score.

Only the demo world has them; other environments have none. The values are exact (dynamic programming) and take seconds
to compute, so those of the demo's two splits ship with the package; a test computes them again.
"""

import json
from dataclasses import asdict
from functools import cache

from dialrl.environment.demo.planner import DemoReference
from dialrl.resources import resource


@cache
def reference_values(environment: str, split: str) -> DemoReference | None:
    """The values of ``environment`` on all scenarios of ``split``; None where no optimum is known."""
    if environment != "demo":
        return None
    shipped = json.loads(resource("demo-world/reference.json").read_text(encoding="utf-8"))
    return DemoReference(**shipped[split]) if split in shipped else None


def computed_reference() -> dict[str, dict[str, float]]:
    """The content of the shipped file, computed."""
    from dialrl.environment.demo.planner import solve
    from dialrl.environment.demo.scenario import SPLIT_SIZES, scenarios

    return {split: asdict(solve(scenarios(split))) for split in SPLIT_SIZES}
