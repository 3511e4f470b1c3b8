"""What the table of a study says: figures by preset and setting, with intervals over seeds, and paired tests.

The unit is the seed. Interquartile means with bootstrap follow Agarwal et al. 2021 (arXiv 2108.13264): within a setting
seeds are drawn again; over all settings they are drawn within each setting (strata). Not here: how it is shown.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dialrl.evaluate.significance import holm, paired_effect_size, sign_flip_p
from dialrl.evaluate.statistics import Interval, interquartile_mean, percentile_interval
from dialrl.ragged import Floats

COLLAPSE = 0.2  # a run that ends this much below its own best has collapsed
STUCK = 0.05  # a run that ends no more than this above the myopic share never left the plateau
RESAMPLES = 2_000


@dataclass(frozen=True)
class RunFigures:
    """One final run: share at the end, mean share over training (``area``), best share, mean gradient norm."""

    seed: int
    final: float
    area: float
    best: float
    gradient_norm: float
    collapsed: bool
    stuck: bool


@dataclass(frozen=True)
class Cell:
    """A preset in a setting over its seeds."""

    setting: str
    preset: str
    step_size: float
    runs: tuple[RunFigures, ...]
    final: float
    final_interval: Interval
    area: float
    area_interval: Interval

    @property
    def worst(self) -> float:
        return min(run.final for run in self.runs)

    @property
    def collapses(self) -> int:
        return sum(run.collapsed for run in self.runs)

    @property
    def stuck(self) -> int:
        return sum(run.stuck for run in self.runs)

    @property
    def gradient_norm(self) -> float:
        return float(np.mean([run.gradient_norm for run in self.runs]))


@dataclass(frozen=True)
class Comparison:
    """Preset minus ``against`` in final share, paired by seed; ``p`` is corrected (Holm) within the setting."""

    setting: str
    preset: str
    against: str
    pairs: int
    difference: float
    interval: Interval
    effect: float | None
    p: float


def cells(table: pa.Table) -> list[Cell]:
    """Every (setting, preset) of the final runs, in the order of the table."""
    found: dict[tuple[str, str], dict[tuple[float, int], list[dict[str, float]]]] = {}
    for row in table.to_pylist():
        if row["phase"] == "final":
            runs = found.setdefault((row["setting"], row["preset"]), {})
            runs.setdefault((row["step_size"], row["seed"]), []).append(row)
    return [_cell(setting, preset, runs) for (setting, preset), runs in found.items()]


def _cell(setting: str, preset: str, runs: Mapping[tuple[float, int], list[dict[str, float]]]) -> Cell:
    figures = tuple(_run(seed, rows) for (_, seed), rows in sorted(runs.items()))
    finals, areas = np.array([run.final for run in figures]), np.array([run.area for run in figures])
    return Cell(
        setting,
        preset,
        next(iter(runs))[0],
        figures,
        interquartile_mean(finals),
        bootstrapped({setting: finals}),
        interquartile_mean(areas),
        bootstrapped({setting: areas}),
    )


def _run(seed: int, rows: Sequence[Mapping[str, float]]) -> RunFigures:
    ordered = sorted(rows, key=lambda row: row["iteration"])
    share, at = np.array([row["share"] for row in ordered]), np.array([row["iteration"] for row in ordered])
    last = ordered[-1]
    myopic = (last["myopic"] - last["silent"]) / (last["optimum"] - last["silent"])
    norms = [row["gradient_norm"] for row in ordered if row["gradient_norm"] is not None]
    final = float(share[-1])
    return RunFigures(
        seed,
        final,
        float(np.trapezoid(share, at) / (at[-1] - at[0])) if len(at) > 1 else final,
        float(share.max()),
        float(np.mean(norms)) if norms else 0.0,
        collapsed=final < float(share.max()) - COLLAPSE,
        stuck=final <= myopic + STUCK,
    )


def bootstrapped(strata: Mapping[str, Floats], *, resamples: int = RESAMPLES, seed: int = 0) -> Interval:
    """95 % interval of the interquartile mean over all strata, each drawn again within itself.

    Example: one stratum of equal values -> an interval of no width.
    """
    generator = np.random.default_rng(seed)
    drawn = [generator.choice(values, (resamples, len(values))) for values in strata.values()]
    return percentile_interval(_interquartile_means(np.concatenate(drawn, axis=1)))


def _interquartile_means(values_BN: Floats) -> Floats:
    """``interquartile_mean`` of each row."""
    rank, number = np.arange(values_BN.shape[1]), values_BN.shape[1]
    kept_N = np.clip(np.minimum(rank + 1, 0.75 * number) - np.maximum(rank, 0.25 * number), 0.0, None)
    means_B: Floats = np.sort(values_BN, axis=1) @ kept_N / kept_N.sum()
    return means_B


@dataclass(frozen=True)
class CurvePoint:
    """Interquartile mean of the share after ``iteration`` updates over the seeds, with its interval."""

    setting: str
    preset: str
    iteration: int
    share: float
    interval: Interval
    seeds: int


def curves(table: pa.Table) -> list[CurvePoint]:
    """The learning curves of the final runs, in the order of the table."""
    found: dict[tuple[str, str, int], list[float]] = {}
    for row in table.to_pylist():
        if row["phase"] == "final":
            found.setdefault((row["setting"], row["preset"], row["iteration"]), []).append(row["share"])
    return [
        CurvePoint(*place, interquartile_mean(shares), bootstrapped({"": np.array(shares)}, resamples=500), len(shares))
        for place, shares in found.items()
    ]


def reference_shares(table: pa.Table) -> dict[str, dict[str, float]]:
    """Setting -> the exact shares of silent, myopic, optimum and clairvoyant."""
    names = ("silent", "myopic", "optimum", "clairvoyant")
    known = {row["setting"]: row for row in table.select(["setting", *names]).to_pylist()}
    return {
        setting: {name: (row[name] - row["silent"]) / (row["optimum"] - row["silent"]) for name in names}
        for setting, row in known.items()
    }


def overall(found: Sequence[Cell]) -> dict[str, tuple[float, Interval]]:
    """Interquartile mean of the final share over all settings, for the presets that were run in each of them."""
    settings = list(dict.fromkeys(cell.setting for cell in found))
    by_preset: dict[str, dict[str, Floats]] = {}
    for cell in found:
        by_preset.setdefault(cell.preset, {})[cell.setting] = np.array([run.final for run in cell.runs])
    return {
        preset: (interquartile_mean(np.concatenate(list(strata.values()))), bootstrapped(strata))
        for preset, strata in by_preset.items()
        if len(strata) == len(settings)
    }


def comparisons(found: Sequence[Cell], against: str) -> list[Comparison]:
    """Every preset against ``against``, setting by setting; nothing for a setting in which that was not run."""
    made: list[Comparison] = []
    for setting in dict.fromkeys(cell.setting for cell in found):
        here = {cell.preset: cell for cell in found if cell.setting == setting}
        base = here.pop(against, None)
        if base is not None:
            made += _compared(setting, base, [cell for cell in here.values() if _shared(cell, base)])
    return made


def _shared(cell: Cell, base: Cell) -> list[tuple[float, float]]:
    """Final shares of the seeds that both have."""
    known = {run.seed: run.final for run in base.runs}
    return [(run.final, known[run.seed]) for run in cell.runs if run.seed in known]


def _compared(setting: str, base: Cell, others: Sequence[Cell]) -> list[Comparison]:
    differences = [np.array([mine - theirs for mine, theirs in _shared(cell, base)]) for cell in others]
    corrected = holm([sign_flip_p(each) for each in differences])
    return [
        Comparison(
            setting, cell.preset, base.preset, len(each), float(each.mean()), _mean_interval(each),
            paired_effect_size(each), p,
        )
        for cell, each, p in zip(others, differences, corrected, strict=True)
    ]  # fmt: skip


def _mean_interval(values: Floats, *, seed: int = 0) -> Interval:
    drawn = np.random.default_rng(seed).choice(values, (RESAMPLES, len(values)))
    return percentile_interval(drawn.mean(axis=1))
