"""EPM-Q: nine indices of a judged dialogue and the one score made of them, as pure functions. Files: ``empa``.

A dialogue of T policy turns has N = T + 1 points, the start (turn 0, with dE 0 and alignment 0) included. Notation of
docs/stages/evaluate-empa.md; a test reproduces the published scores of four models:

* outcome (0.4): RDI = clip((100 (d0 - dT) / r + 100) / 2, 0, 100); Etot = 100 max(0, E) / (1.2 r);
  Snet = 100 max(0, S) / (1.5 r), where d0, dT are the zone distances of the first and last point, r = d0 (1 where d0 is
  0), E the final energy and S the sum over turns of the graded *levels*, not scores;
* efficiency (0.2): Rho = 100 max(0, E / T) / 2.5; Sproj = 100 max(0, sum dE / N) / 2.5; Tau = max(0, 100 (3 - tau) / 2)
  with tau = path length / |P_T - P_0|, 1 where nothing moved or the path ends where it began, never below 1;
* stability (0.4): Rpos = 100 times the share of the N points with dE > 0; Align = 100 (mean alignment + 1) / 2;
  Pen = max(0, 100 (3 - pen) / 3) with pen = sum of the levels below 0, as magnitudes, / N.

Each index is averaged over dialogues first; a dimension is the mean of its three; EPM-Q their weighted sum. It may
exceed 100. Degenerate cases: without a deficit (P_0 = 0) all dE and alignments are 0.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dialrl.state.model import FloatArray, alignment, energy, energy_step, norm, zone_distance

INDICES = ("RDI", "Etot", "Snet", "Rho", "Sproj", "Tau", "Rpos", "Align", "Pen")
DIMENSIONS = {"outcome": INDICES[:3], "efficiency": INDICES[3:6], "stability": INDICES[6:]}
DIMENSION_WEIGHTS = {"outcome": 0.4, "efficiency": 0.2, "stability": 0.4}
KNOWN_FLAWS = (
    "Tau rewards short straight paths, also wrong ones: a dialogue that goes straight away from the goal gets 100.",
    "The final energy drives three of the nine indices (Etot, Rho, Sproj).",
)
_NOTHING = 1e-6  # a distance this small counts as none, as published
_ROUNDING = 1e-12


@dataclass(frozen=True)
class JudgedTurns:
    """D dialogues laid end to end, only turns that count.

    ``deficit_DA`` (D, A); ``position_KA`` (K, A) after each reply; ``level_K`` and ``harm_K`` (K,) the sum of the
    turn's levels and of the magnitudes of those below 0; ``dialogue_start`` (D+1,) row offsets, every dialogue has at
    least one turn.
    """

    deficit_DA: FloatArray
    position_KA: FloatArray
    level_K: FloatArray
    harm_K: FloatArray
    dialogue_start: NDArray[np.int64]


def index_table(turns: JudgedTurns, epsilon: float = 1.0) -> FloatArray:
    """The nine indices of each dialogue, (D, 9) in the order of ``INDICES``."""
    outcome, efficiency, stability = _outcome(turns, epsilon), _efficiency(turns), _stability(turns)
    return np.stack([*outcome, *efficiency, *stability], axis=1)


def dimension_scores(index_M9: FloatArray) -> FloatArray:
    """Means of the indices (..., 9) -> outcome, efficiency, stability (..., 3)."""
    by_dimension: FloatArray = index_M9.reshape(*index_M9.shape[:-1], 3, 3).mean(axis=-1)
    return by_dimension


def epm_q(index_M9: FloatArray) -> FloatArray:
    """Means of the indices (..., 9) -> EPM-Q (...).

    Example: outcome 102.30, efficiency 69.68, stability 89.70 -> 40.92 + 13.936 + 35.88 = 90.74.
    """
    weighted: FloatArray = dimension_scores(index_M9) @ np.array(list(DIMENSION_WEIGHTS.values()))
    return weighted


def _outcome(turns: JudgedTurns, epsilon: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    last_DA = turns.position_KA[turns.dialogue_start[1:] - 1]
    first_D = zone_distance(turns.deficit_DA, epsilon)
    scale_D = np.where(first_D <= _NOTHING, 1.0, first_D)
    reduction_D = 100.0 * (first_D - zone_distance(last_DA, epsilon)) / scale_D
    energy_D = np.maximum(energy(last_DA, turns.deficit_DA), 0.0)
    level_D = np.maximum(_sum(turns, turns.level_K), 0.0)
    return (
        np.clip((reduction_D + 100.0) / 2.0, 0.0, 100.0),
        100.0 * energy_D / (1.2 * scale_D),
        100.0 * level_D / (1.5 * scale_D),
    )


def _efficiency(turns: JudgedTurns) -> tuple[FloatArray, FloatArray, FloatArray]:
    last_DA = turns.position_KA[turns.dialogue_start[1:] - 1]
    energy_D = np.maximum(energy(last_DA, turns.deficit_DA), 0.0)
    count_D = np.diff(turns.dialogue_start)
    tau_D = detour(_sum(turns, norm(_steps(turns))), norm(last_DA - turns.deficit_DA))
    return (
        100.0 * energy_D / count_D / 2.5,
        100.0 * energy_D / (count_D + 1) / 2.5,
        np.maximum(100.0 * (3.0 - tau_D) / 2.0, 0.0),
    )


def detour(path_D: FloatArray, net_D: FloatArray) -> FloatArray:
    """tau: path length over the distance between its ends, never below 1.

    A path that ends where it began has no such ratio; published code gives it 0, which the floor lifts to 1 as well.
    Example: 3 steps of 1 that end 1 away -> 3; no step -> 1; out and back -> 1.
    """
    ends_apart_D = net_D > _ROUNDING * path_D
    ratio_D = np.divide(path_D, net_D, out=np.zeros_like(path_D), where=ends_apart_D)
    return np.maximum(ratio_D, 1.0)


def _stability(turns: JudgedTurns) -> tuple[FloatArray, FloatArray, FloatArray]:
    points_D = np.diff(turns.dialogue_start) + 1
    step_KA = _steps(turns)
    deficit_KA = _each_turn(turns)
    forward_K = energy_step(step_KA, deficit_KA) > _ROUNDING * norm(step_KA)
    aligned_D = _sum(turns, alignment(step_KA, deficit_KA)) / points_D
    harm_D = _sum(turns, turns.harm_K) / points_D
    return (
        100.0 * _sum(turns, forward_K.astype(np.float64)) / points_D,
        100.0 * (aligned_D + 1.0) / 2.0,
        np.maximum(100.0 * (3.0 - harm_D) / 3.0, 0.0),
    )


def _steps(turns: JudgedTurns) -> FloatArray:
    """What each turn changed, (K, A); 0 where the position was carried over a missing judgement."""
    before_KA = np.empty_like(turns.position_KA)
    before_KA[1:] = turns.position_KA[:-1]
    before_KA[turns.dialogue_start[:-1]] = turns.deficit_DA
    return turns.position_KA - before_KA


def _each_turn(turns: JudgedTurns) -> FloatArray:
    return np.repeat(turns.deficit_DA, np.diff(turns.dialogue_start), axis=0)


def _sum(turns: JudgedTurns, value_K: FloatArray) -> FloatArray:
    """Sum over each dialogue's turns, (K,) -> (D,)."""
    total: FloatArray = np.add.reduceat(value_K, turns.dialogue_start[:-1])
    return total
