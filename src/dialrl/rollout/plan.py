"""Which dialogues a rollout holds: scenarios drawn, group ids, and the fixed blocks the engine works in.

Everything here is decided by the settings before the first token is drawn, never by timing.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dialrl.errors import InputError
from dialrl.rollout.config import RolloutConfig
from dialrl.scenario.card import Scenario
from dialrl.seeds import seed_for


@dataclass(frozen=True)
class Group:
    """Dialogues of one scenario from one opening line."""

    group_id: str
    scenario: Scenario


@dataclass(frozen=True)
class DialoguePlan:
    """One dialogue to roll out. ``order`` is its place in the output."""

    group: Group
    sample: int
    order: int

    @property
    def dialogue_id(self) -> str:
        return f"{self.group.group_id}/{self.sample}"


def draw_groups(scenarios: Sequence[Scenario], config: RolloutConfig, *, extra: int = 0) -> list[Group]:
    """``config.groups`` groups (then ``extra`` more), in drawing order.

    Iterations walk through shuffled passes over all scenarios, so that every scenario is met before one comes again.
    A scenario met twice in one rollout gives a second group, ``<scenario>#1``.
    """
    if not scenarios:
        told = no_scenarios(config.environment, config.split, config.environment_options)
        raise InputError(told[0].upper() + told[1:])
    stride = config.groups + config.resample_degenerate
    start = config.iteration * stride
    drawn = [_scenario_at(scenarios, start + index, config.seed) for index in range(config.groups + extra)]
    seen: Counter[str] = Counter()
    groups = []
    for scenario in drawn:
        repeat = seen[scenario.scenario_id]
        seen[scenario.scenario_id] += 1
        suffix = f"#{repeat}" if repeat else ""
        groups.append(Group(f"{scenario.scenario_id}{suffix}", scenario))
    return groups


def no_scenarios(environment: str, split: str, options: Mapping[str, Any]) -> str:
    """What to say of a split that is empty, as a clause: which options hide the scenarios, and what to do."""
    told = f"environment '{environment}' has no scenarios in split '{split}'"
    languages, cards = options.get("languages"), options.get("cards")
    if languages:
        told += f" in the languages {', '.join(map(str, languages))} (environment_options.languages; [] takes all)"
    if cards:
        told += f" among the cards of '{cards}'. Give cards of that split"
        if split == "test":
            told += ", or leave `cards` out of evaluate.environment_options to be measured on the shipped ones"
    return f"{told}."


def _scenario_at(scenarios: Sequence[Scenario], position: int, seed: int) -> Scenario:
    epoch, place = divmod(position, len(scenarios))
    generator = np.random.Generator(np.random.Philox(seed_for(seed, epoch, "", 0, 0, "scenario-order")))
    return scenarios[int(generator.permutation(len(scenarios))[place])]


def plan_dialogues(groups: Sequence[Group], samples: int) -> list[DialoguePlan]:
    """All dialogues, in file order: by group id, then sample."""
    ordered = sorted(groups, key=lambda group: group.group_id)
    return [
        DialoguePlan(group, sample, index * samples + sample)
        for index, group in enumerate(ordered)
        for sample in range(samples)
    ]


def blocks(plans: Sequence[DialoguePlan], size: int) -> list[list[DialoguePlan]]:
    """Consecutive dialogues in blocks of ``size``."""
    return [list(plans[start : start + size]) for start in range(0, len(plans), size)]
