"""What the tables of the variance study and the cost study say, with intervals.

The unit of the variance study is the batch, that of the cost study the seed. Not here: measuring.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dialrl.evaluate.significance import holm, sign_flip_p
from dialrl.evaluate.statistics import interquartile_mean, percentile_interval
from dialrl.evaluate.study_figures import bootstrapped
from dialrl.ragged import Floats
from dialrl.summary import StageSummary

RESAMPLES = 2_000
NO_SIGNAL = 1e6


def variance_summary(batches: Path, coordinates: Path, *, played_now: int) -> StageSummary:
    """Figures by policy and preset."""
    table, places = pq.read_table(batches), pq.read_table(coordinates)
    figures: dict[str, Any] = {}
    shares = dict(_pairs(table, "updates", "share"))
    for updates, preset in _pairs(table, "updates", "preset"):
        found = variance_figures(
            _where(table, updates=updates, preset=preset), _where(places, updates=updates, preset=preset)
        )
        figures.setdefault(str(updates), {})[preset] = found
    counts = {"batches": len(set(table["batch"].to_pylist())), "policies": len(figures), "measured_now": played_now}
    named = {"share": {str(updates): share for updates, share in shares.items()}, "after_updates": figures}
    return StageSummary("lab variance", batches, counts, named)


def variance_figures(batches: pa.Table, coordinates: pa.Table) -> dict[str, Any]:
    """One line: how a batch's gradient lies to the exact one.

    ``cosine``: mean cosine of one batch with the exact gradient; ``cosine_of_mean``: that of the mean over all batches
    (what is left is bias); ``noise``: trace of the covariance over the squared size of the mean; ``coordinate_snr``:
    median over weights of |mean| / std, from one batch. Intervals are bootstraps over batches.

    Example: gradients (1, 0) and (1, 2) against exact (1, 0): mean (1, 1), covariance trace (sample) 2, the mean's
    squared size 2 - 2 / 2 = 1 once its own noise is taken off: noise 2.
    """
    norm_B, dot_B = _numbers(batches, "norm"), _numbers(batches, "dot_mean")
    cosine_B = np.nan_to_num(_numbers(batches, "cosine"))
    drawn_RB = np.random.default_rng(0).integers(0, len(norm_B), (RESAMPLES, len(norm_B)))
    mean, std, exact = (_numbers(coordinates, name) for name in ("mean", "std", "exact"))
    sizes = float(np.linalg.norm(mean) * np.linalg.norm(exact))
    return {
        "cosine": float(cosine_B.mean()),
        **_ends("cosine", cosine_B[drawn_RB].mean(axis=1)),
        "cosine_of_mean": float(mean @ exact) / sizes if sizes > 0.0 else 0.0,
        "noise": float(_noise(norm_B[None], dot_B[None])[0]),
        **_ends("noise", _noise(norm_B[drawn_RB], dot_B[drawn_RB])),
        "coordinate_snr": float(np.median(np.abs(mean[std > 0.0]) / std[std > 0.0])) if (std > 0.0).any() else 0.0,
        "norm": float(norm_B.mean()),
        "no_gradient": int((norm_B == 0.0).sum()),
    }


def _noise(norm_RB: Floats, dot_RB: Floats) -> Floats:
    """(R,) trace of the covariance over |mean|^2, each freed of the other's share; a million where nothing is left."""
    number = norm_RB.shape[1]
    apparent_R = dot_RB.mean(axis=1)
    trace_R = ((norm_RB**2).mean(axis=1) - apparent_R) * number / (number - 1)
    signal_R = apparent_R - trace_R / number
    least_R = np.maximum(signal_R, trace_R / NO_SIGNAL)
    ratio_R: Floats = np.divide(trace_R, least_R, out=np.zeros_like(trace_R), where=least_R > 0.0)
    return ratio_R


def _ends(name: str, value_R: Floats) -> dict[str, float]:
    interval = percentile_interval(value_R)
    return {f"{name}_low": interval.low, f"{name}_high": interval.high}


def _numbers(table: pa.Table, name: str) -> Floats:
    return np.asarray(table[name].to_numpy(), dtype=np.float64)


def _where(table: pa.Table, **values: Any) -> pa.Table:
    for name, value in values.items():
        table = table.filter(pc.equal(table[name], value))
    return table


def _pairs(table: pa.Table, first: str, second: str) -> Sequence[tuple[Any, Any]]:
    """The pairs of values that occur, in the order of the table."""
    return list(dict.fromkeys(zip(table[first].to_pylist(), table[second].to_pylist(), strict=True)))


def cost_summary(path: Path, against: str, *, played_now: int, at_edge: Sequence[str] = ()) -> StageSummary:
    """Figures by method, and every method against ``against`` seed by seed; ``at_edge``: chosen at the plan's edge."""
    table = _where(pq.read_table(path), phase="final")
    methods = list(dict.fromkeys(table["method"].to_pylist()))
    finals = {method: _finals(_where(table, method=method)) for method in methods}
    base = {row["seed"]: row["share"] for row in finals.get(against, ())}
    figures = {method: cost_figures(rows) for method, rows in finals.items()}
    pairs = {
        method: np.array([row["share"] - base[row["seed"]] for row in rows if row["seed"] in base])
        for method, rows in finals.items()
        if base and method != against
    }
    corrected = dict(zip(pairs, holm([sign_flip_p(each) for each in pairs.values()]), strict=True))
    compared = {method: {"difference": float(pairs[method].mean()), "p_holm": p} for method, p in corrected.items()}
    warnings = [
        f"The chosen step size lies at the edge of those tried, so a better one may lie beyond: {', '.join(at_edge)}."
    ]
    counts = {"runs": len(set(zip(table["method"].to_pylist(), table["seed"].to_pylist(), strict=True)))}
    return StageSummary(
        "lab cost",
        path,
        {**counts, "played_now": played_now},
        {"methods": figures, "compared_with": against, "comparisons": compared},
        tuple(warnings if at_edge else ()),
    )


def cost_figures(finals: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One line: the final share (interquartile mean over seeds, bootstrap interval), and what an update cost."""
    shares = np.array([row["share"] for row in finals])
    interval = bootstrapped({"": shares}, resamples=RESAMPLES)
    updates = sum(row["iteration"] for row in finals)
    return {
        "final": interquartile_mean(shares),
        "final_low": interval.low,
        "final_high": interval.high,
        "worst": float(shares.min()),
        **{
            f"{name}_an_update": sum(row[name] for row in finals) / updates
            for name in ("policy_turns", "user_turns", "trained_turns")
        },
        "step_size": finals[0]["step_size"],
        "seeds": len(finals),
    }


def _finals(table: pa.Table) -> list[dict[str, Any]]:
    """The last row of each seed's run."""
    last = {row["seed"]: row for row in sorted(table.to_pylist(), key=lambda row: row["iteration"])}
    return [last[seed] for seed in sorted(last)]
