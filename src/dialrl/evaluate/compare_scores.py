"""Policies compared on the same scenarios: paired differences with intervals, effect sizes, corrected p-values.

The unit is the scenario: a policy's value on it is the mean of its dialogues there (or its score on the item), and only
scenarios that both sides have are compared. Not here: reading files of both kinds (``compare``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dialrl.errors import InputError
from dialrl.evaluate.compare_config import CompareConfig
from dialrl.evaluate.significance import holm, paired_effect_size, sign_flip_p
from dialrl.evaluate.statistics import (
    percentile_interval,
    scenario_bootstrap,
    smallest_detectable_difference,
    standard_error,
)
from dialrl.ragged import Floats


@dataclass(frozen=True)
class Contender:
    """What is compared: a name and, by figure and scenario, its values (one a dialogue or item).

    ``units`` is how many there are, ``left_out`` how many had no value.
    """

    name: str
    values: Mapping[str, Mapping[str, Sequence[float]]]
    units: int
    left_out: int = 0

    def mean(self, figure: str) -> float:
        """Mean over all dialogues or items."""
        held = [value for values in self.values[figure].values() for value in values]
        return sum(held) / len(held)

    def by_scenario(self, figure: str) -> dict[str, float]:
        """Mean of each scenario."""
        return {scenario: sum(values) / len(values) for scenario, values in self.values[figure].items()}


def compare_scores(contenders: Sequence[Contender], config: CompareConfig) -> tuple[dict[str, Any], dict[str, int]]:
    """Figures and counts. Raises InputError for two contenders without a scenario in common."""
    pairs = _pairs(contenders, config)
    figures = list(contenders[0].values)
    found = {
        figure: {f"{second.name} - {first.name}": _difference(first, second, figure, config) for first, second in pairs}
        for figure in figures
    }
    every = [entry for by_pair in found.values() for entry in by_pair.values()]
    for entry, corrected in zip(every, holm([entry["p"] for entry in every]), strict=True):
        entry["p_holm"] = corrected
    scenarios = [set(contender.values[figures[0]]) for contender in contenders]
    counts = {
        "contenders": len(contenders),
        "comparisons": len(every),
        "scenarios_of_all": len(set.intersection(*scenarios)),
        "scenarios_left_out": len(set.union(*scenarios)) - len(set.intersection(*scenarios)),
    }
    values = {
        contender.name: {
            **{figure: contender.mean(figure) for figure in figures},
            "scenarios": len(contender.values[figures[0]]),
            "counted": contender.units,
            "left_out": contender.left_out,
        }
        for contender in contenders
    }
    return {"values": values, "differences": found}, counts


def _pairs(contenders: Sequence[Contender], config: CompareConfig) -> list[tuple[Contender, Contender]]:
    """Each against the first, or every two."""
    if config.pairs == "first":
        return [(contenders[0], other) for other in contenders[1:]]
    return [(one, other) for place, one in enumerate(contenders) for other in contenders[place + 1 :]]


def _difference(first: Contender, second: Contender, figure: str, config: CompareConfig) -> dict[str, Any]:
    before, after = first.by_scenario(figure), second.by_scenario(figure)
    shared = sorted(before.keys() & after.keys())
    if not shared:
        raise InputError(
            f"'{first.name}' and '{second.name}' have no scenario in common; a comparison is paired by scenario."
        )
    difference_S: Floats = np.array([after[scenario] - before[scenario] for scenario in shared])
    drawn = scenario_bootstrap(difference_S[:, None], shared, resamples=config.resamples, seed=config.seed)[:, 0]
    interval = percentile_interval(drawn, config.confidence)
    return {
        "difference": float(difference_S.mean()),
        "low": interval.low,
        "high": interval.high,
        "effect_size": paired_effect_size(difference_S),
        "scenarios": len(shared),
        "better_share": float((difference_S > 0).mean()),
        "smallest_detectable": smallest_detectable_difference(
            standard_error(drawn), level=config.confidence, power=config.power, paired=True
        ),
        "p": sign_flip_p(difference_S, resamples=config.resamples, seed=config.seed),
    }


def too_small_to_tell(figures: Mapping[str, Any], config: CompareConfig) -> list[str]:
    """Names of the differences that this many scenarios cannot tell from none."""
    return [
        f"{figure}, {pair}"
        for figure, by_pair in figures["differences"].items()
        for pair, entry in by_pair.items()
        if entry["p_holm"] > 1.0 - config.confidence
    ]
