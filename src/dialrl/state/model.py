"""The support-state model: how far a person still is from feeling understood, and what one reply changed.

A state is a point with one coordinate an axis (the shipped rubric names C, A, P): below 0 is an unmet need, 0 is met,
above 0 is surplus. The state starts at the deficit P_0 and each judged reply adds its increment. Everything here is a
pure numpy function over ``(..., A)`` arrays, so that one call serves a turn, a dialogue or a whole file; ``deficit``
may be one point ``(A,)`` or a point a row. Source: docs/state-model.md (EMPA, arXiv 2603.00552).
Not here: levels and scores (``rubric``), when a dialogue stops (``stop``), rewards (``dialrl.returns``).

Worked example (used in the docstrings below): P_0 = (-17, -18, -13), |P_0| = 27.9643; an increment (1, 1, 1) leads to
(-16, -17, -12).
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dialrl.errors import InputError

FloatArray = NDArray[np.float64]


def zone_distance(position_KA: ArrayLike, epsilon: float = 1.0, weights: Sequence[float] | None = None) -> FloatArray:
    """Distance to the zone in which every coordinate is at least ``-epsilon``: sqrt(sum_a w_a max(0, -e - P_a)^2).

    ``position_KA``: (..., A) -> (...). Surplus is never penalised; inside the zone the distance is 0. ``weights`` (A,),
    each >= 0, stand inside the root; without them all are 1. Raises InputError when their number is not the number of
    axes or one is negative.

    Example: (-17, -18, -13) -> sqrt(16^2 + 17^2 + 12^2) = 26.249; (-16, -17, -12) -> 24.536.
    """
    position = as_points(position_KA)
    axes = position.shape[-1]
    total = np.zeros(position.shape[:-1])
    for axis, weight in enumerate(_axis_weights(weights, axes)):
        shortfall = np.minimum(position[..., axis] + epsilon, 0.0)
        total += weight * shortfall * shortfall
    return np.sqrt(total)


def norm(point_KA: ArrayLike) -> FloatArray:
    """Euclidean length, (..., A) -> (...). Example: (-17, -18, -13) -> 27.9643."""
    points = as_points(point_KA)
    return np.sqrt(_dot(points, points))


def direction(deficit_KA: ArrayLike) -> FloatArray:
    """v* = -P_0 / |P_0|, the direction straight to the origin, (..., A) -> (..., A); zeros where P_0 = 0.

    Example: (-17, -18, -13) -> (0.6079, 0.6437, 0.4649).
    """
    deficit = as_points(deficit_KA)
    return _divided(-deficit, norm(deficit)[..., None])


def energy_step(increment_KA: ArrayLike, deficit_KA: ArrayLike) -> FloatArray:
    """dE = v . v*, signed progress of each turn along the direct way, (..., A) -> (...); 0 where P_0 = 0.

    Example: (1, 1, 1) from (-17, -18, -13) -> 48 / 27.9643 = 1.7165.
    """
    deficit = as_points(deficit_KA)
    return _divided(-_dot(as_points(increment_KA), deficit), norm(deficit))


def energy(position_KA: ArrayLike, deficit_KA: ArrayLike) -> FloatArray:
    """E, the sum of all energy steps up to this position: projection + |P_0|, (..., A) -> (...); 0 where P_0 = 0.

    Example: (-16, -17, -12) from (-17, -18, -13) -> 1.7165.
    """
    return energy_step(as_points(position_KA) - as_points(deficit_KA), deficit_KA)


def alignment(increment_KA: ArrayLike, deficit_KA: ArrayLike) -> FloatArray:
    """Cosine of an increment and the direct way, (..., A) -> (...); 0 where the increment or P_0 is 0.

    Example: (1, 1, 1) from (-17, -18, -13) -> 1.7165 / 1.7321 = 0.991.
    """
    return _divided(energy_step(increment_KA, deficit_KA), norm(increment_KA))


def projection(position_KA: ArrayLike, deficit_KA: ArrayLike) -> FloatArray:
    """P . v*, (..., A) -> (...): -|P_0| at the start, 0 on the plane through the origin; 0 where P_0 = 0.

    Example: (-16, -17, -12) from (-17, -18, -13) -> -26.2477.
    """
    return energy_step(position_KA, deficit_KA)


def positions_after(increment_KA: ArrayLike, deficit_A: ArrayLike) -> FloatArray:
    """Position after each turn of one dialogue, (K, A) -> (K, A): P_0 plus the increments so far.

    A turn whose judgement is missing has NaN in its row: it adds nothing, so the position is carried forward.

    Example: increments (1, 1, 1), missing, (0, 2, 0) from (-17, -18, -13) -> (-16, -17, -12) twice, (-16, -15, -12).
    """
    known = np.nan_to_num(as_points(increment_KA), nan=0.0)
    walked: FloatArray = np.cumsum(np.vstack([as_points(deficit_A), known]), axis=0)
    return walked[1:]  # added turn after turn, as a live dialogue does: the same bits


def as_points(values: ArrayLike) -> FloatArray:
    """``values`` as float64 points (..., A); raises InputError for a bare number."""
    points = np.asarray(values, dtype=np.float64)
    if points.ndim == 0:
        raise InputError(f"A state needs one coordinate an axis; got the single number {points}.")
    return points


def _axis_weights(weights: Sequence[float] | None, axes: int) -> FloatArray:
    if weights is None:
        return np.ones(axes)
    given = np.asarray(weights, dtype=np.float64)
    if given.shape != (axes,) or not np.all(given >= 0):
        raise InputError(f"Axis weights {list(weights)} do not fit: expected {axes} numbers >= 0, one an axis.")
    return given


def _dot(left: FloatArray, right: FloatArray) -> FloatArray:
    """Sum over the last axis, coordinate by coordinate: few axes make that the fast way, and the order of summation
    (so the last bit of the result) never depends on how many rows are handed in together."""
    total = np.zeros(np.broadcast_shapes(left.shape, right.shape)[:-1])
    for axis in range(left.shape[-1]):
        total += left[..., axis] * right[..., axis]
    return total


def _divided(numerator: FloatArray, denominator: FloatArray) -> FloatArray:
    """Quotient, 0 where the denominator is 0; NaN stays NaN."""
    shape = np.broadcast_shapes(numerator.shape, denominator.shape)
    return np.divide(numerator, denominator, out=np.zeros(shape), where=denominator != 0)
