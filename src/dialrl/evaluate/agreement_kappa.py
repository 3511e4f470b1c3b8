"""Kappa of two ratings of the same units with its interval, and of one judge with itself (test-retest).

Not here: the measure (``agreement_measures``), comparisons of several files (``agreement``).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dialrl.errors import InputError
from dialrl.evaluate.agreement_files import JudgedFile, sample_ratings
from dialrl.evaluate.agreement_measures import level_pairs, quadratic_kappa
from dialrl.evaluate.benchmark_config import AgreementConfig
from dialrl.evaluate.statistics import mean_or_none, percentile_interval, scenario_bootstrap
from dialrl.ragged import Floats
from dialrl.state.rubric import Rubric


def indicator_levels(rubric: Rubric, indicator: str, rating_RK: Floats) -> tuple[int, ...]:
    """The levels of an indicator; a rating that is none of them is refused."""
    known = next((part for part in rubric.indicators if part.name == indicator), None)
    if known is None:
        raise InputError(
            f"Indicator '{indicator}' is not in the rubric '{rubric.name}' ({', '.join(rubric.indicator_names)})."
            " Give the rubric that was graded: --rubric"
        )
    levels = tuple(sorted(level.level for level in known.levels))
    strange = sorted(set(rating_RK[~np.isnan(rating_RK)].tolist()) - {float(level) for level in levels})
    if strange:
        raise InputError(f"Indicator '{indicator}' has the level {strange[0]:g}; the rubric has {list(levels)}.")
    return levels


@dataclass(frozen=True)
class Kappa:
    """Kappa of two raters with its bootstrap values; NaN where it is not defined."""

    value: float
    drawn_B: Floats
    units: int

    @classmethod
    def of(
        cls, rating_2K: Floats, levels: Sequence[int], scenarios: Sequence[str], config: AgreementConfig
    ) -> "Kappa | None":
        """None where no unit was rated by both."""
        table_ULL, known_K = level_pairs(rating_2K[0], rating_2K[1], levels)
        if not len(table_ULL):
            return None
        held = [scenario for scenario, known in zip(scenarios, known_K, strict=True) if known]
        flat = table_ULL.reshape(len(table_ULL), -1)
        drawn = scenario_bootstrap(flat, held, resamples=config.resamples, seed=config.seed)
        sizes = (-1, len(levels), len(levels))
        value = quadratic_kappa(flat.sum(axis=0).reshape(sizes), levels)[0]
        return cls(float(value), quadratic_kappa(drawn.reshape(sizes), levels), len(table_ULL))


class Retest:
    """One judge with itself: the first two samples behind each verdict, by file and indicator."""

    def __init__(self, files: Sequence[JudgedFile], rubric: Rubric, config: AgreementConfig) -> None:
        self.figures: dict[str, dict[str, Any]] = {}
        self._values: list[float] = []
        for file in files:
            for indicator, (scenarios, rating_2U) in sample_ratings(file).items():
                levels = indicator_levels(rubric, indicator, rating_2U)
                self.add(f"{file.name}, {indicator}", Kappa.of(rating_2U, levels, scenarios, config), config)

    def add(self, name: str, kappa: Kappa | None, config: AgreementConfig) -> None:
        """Take the kappa of two judgements by the same judge."""
        if kappa is not None:
            self.figures[name] = {
                "kappa": known_or_none(kappa.value),
                **ends(kappa.drawn_B, config),
                "turns": kappa.units,
            }
            self._values += [] if np.isnan(kappa.value) else [kappa.value]

    @property
    def mean(self) -> float | None:
        """Mean kappa over files and indicators; None where none is known."""
        return mean_or_none(self._values)


def ends(drawn_B: Floats, config: AgreementConfig) -> dict[str, float | None]:
    """Ends of the interval over the resamples in which the measure is defined; None where it never is."""
    known = drawn_B[~np.isnan(drawn_B)]
    if not len(known):
        return {"low": None, "high": None}
    return dict(percentile_interval(known, config.confidence).to_json())


def known_or_none(value: float) -> float | None:
    """NaN as None."""
    return None if np.isnan(value) else value
