"""When a dialogue stops: success, collapse, regression, oscillation, turn limit, as one function of the state's path.

The same arithmetic serves a file graded afterwards (``stops``, all dialogues at once), one dialogue (``stop_turn``) and
a live one (``StopTracker``, turn by turn), with equal results. Source: docs/state-model.md; there turns count from 1,
so turn t is row ``turn`` = t - 1. Not here: the rules in words and their parameters (``rules``), writing ``stop_turn``
into files, and limits that are no matter of the state (tokens, time).

Degenerate cases: with P_0 = 0 there is no need left to meet, all dE are 0 and min_turns is a success. A turn whose
judgement is missing (increment None or NaN) has dE 0 and carries the position forward; its point counts in all windows.
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dialrl.errors import InputError
from dialrl.state.model import FloatArray, as_points, energy_step, norm, projection
from dialrl.state.rules import REASONS, StopRules

__all__ = ["REASONS", "Stop", "StopRules", "StopTracker", "need_met", "stop_turn", "stops", "success_kind"]

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

COLLAPSE_TURNS = 5
REGRESSION_SPREAD_TURNS, REGRESSION_SPREAD = 5, 0.5
REGRESSION_TURNS, REGRESSION_SHARE, REGRESSION_ENERGY = 8, 0.7, -1.0
OSCILLATION_TURNS, OSCILLATION_DISTANCE = 12, 3.0
LONGEST_WINDOW = OSCILLATION_TURNS
ROUNDING = 1e-12  # relative: sums of scores such as 0.1 must not miss a threshold they reach exactly


class Stop(NamedTuple):
    """``turn`` from 0, as in the file; both None when no rule fired."""

    turn: int | None
    reason: str | None


def stop_turn(
    position_KA: ArrayLike,
    deficit_A: ArrayLike,
    increment_KA: ArrayLike | Sequence[Sequence[float] | None],
    rules: StopRules,
) -> Stop:
    """The first turn of one dialogue at which a rule fires, and the rule's name.

    ``position_KA`` (K, A) after each reply, ``deficit_A`` (A,), ``increment_KA`` (K, A) with None or NaN rows where the
    judgement is missing. Raises InputError when their shapes differ.

    Example (min_turns 2): deficit (-2, 0), increments (1, 0), (1, 0) -> positions (-1, 0), (0, 0): Stop(1, "success").
    """
    position = as_points(position_KA)
    increment = _with_nan(increment_KA, position.shape)
    row, code = stops(position, as_points(deficit_A), increment, np.array([0, len(position)]), rules)
    return Stop(None if row[0] < 0 else int(row[0]), REASONS[code[0]])


def stops(
    position_KA: FloatArray,
    deficit_KA: FloatArray,
    increment_KA: FloatArray,
    dialogue_start_D: Ints,
    rules: StopRules,
) -> tuple[Ints, Ints]:
    """The first stop of every dialogue of a file: turn from 0 or -1 (D,), and index into ``REASONS`` (D,).

    Rows (N) of all dialogues stand one after the other; ``dialogue_start_D`` (D+1,) holds their first rows and N.
    ``deficit_KA`` is (N, A) or (A,). Missing increments are NaN.
    """
    starts, lengths = dialogue_start_D[:-1], np.diff(dialogue_start_D)
    turn_K = np.arange(len(position_KA)) - np.repeat(starts, lengths)
    fired_K = _fired(position_KA, deficit_KA, increment_KA, turn_K + 1, rules)
    rows = np.flatnonzero(fired_K)
    first = np.searchsorted(rows, starts)
    row_D = np.append(rows, len(position_KA))[first]
    stopped = row_D < dialogue_start_D[1:]
    code_D = np.where(stopped, np.append(fired_K, 0)[row_D], 0)
    return np.where(stopped, row_D - starts, -1), code_D.astype(np.int64)


def need_met(position_KA: FloatArray, deficit_KA: FloatArray, alpha: float) -> Flags:
    """The success condition alone, whatever the turn, (..., A) -> (...): near the origin or past the plane, and enough
    energy. Example: deficit (-3, -4): (0, 0) and (8, -6) meet it, (0, -0.1) does not.
    """
    need = norm(deficit_KA)
    along_K = projection(position_KA, deficit_KA)
    near_K = norm(position_KA) <= _threshold(need, alpha)
    crossed_K = along_K >= -_threshold(need, alpha)
    energy_reached_K = along_K >= -ROUNDING * need
    return np.asarray((near_K | crossed_K) & energy_reached_K)


def success_kind(position_A: ArrayLike, deficit_A: ArrayLike, rules: StopRules) -> Literal["geometric", "positional"]:
    """Label of a success: "geometric" when the position is near the origin itself, else "positional"."""
    near = norm(position_A) <= _threshold(norm(deficit_A), rules.alpha)
    return "geometric" if near else "positional"


class StopTracker:
    """The state of one live dialogue and the rule that ended it; equal to ``stop_turn`` over the same turns.

    Keeps only the longest window of turns, so a turn costs the same however long the dialogue is.
    """

    def __init__(self, deficit: Sequence[float], rules: StopRules) -> None:
        self.deficit: FloatArray = as_points(deficit)
        self.position: FloatArray = self.deficit.copy()
        self.turns = 0
        self.stop = Stop(None, None)
        self._rules = rules
        self._positions: deque[FloatArray] = deque(maxlen=LONGEST_WINDOW)
        self._increments: deque[FloatArray] = deque(maxlen=LONGEST_WINDOW)

    def add(self, increment: Sequence[float] | None) -> str | None:
        """Take the judgement of the next turn (None: missing); the name of the first rule that has fired, or None.

        Raises InputError when the increment has another number of axes than the deficit.
        """
        known = np.zeros_like(self.deficit) if increment is None else as_points(increment)
        if known.shape != self.deficit.shape:
            raise InputError(f"Increment {increment} does not have the {len(self.deficit)} axes of the deficit.")
        self.position = self.position + known
        self._positions.append(self.position)
        self._increments.append(known)
        self.turns += 1
        if self.stop.turn is None:
            reason = REASONS[self._latest()]
            self.stop = Stop(None if reason is None else self.turns - 1, reason)
        return self.stop.reason

    def _latest(self) -> int:
        held = len(self._positions)
        turn_K = np.arange(self.turns - held + 1, self.turns + 1)
        positions, increments = np.array(self._positions), np.array(self._increments)
        return int(_fired(positions, self.deficit, increments, turn_K, self._rules)[-1])


def _fired(
    position_KA: FloatArray, deficit_KA: FloatArray, increment_KA: FloatArray, number_K: Ints, rules: StopRules
) -> Ints:
    """Index into REASONS of the rule that holds at each row (0: none); ``number_K`` counts turns from 1.

    Windows look back over rows; a rule whose window is longer than the dialogue so far does not hold.
    """
    known_KA = np.nan_to_num(increment_KA, nan=0.0)
    late_K = number_K >= rules.min_turns
    longest = int(number_K.max(initial=0))
    never_K = np.zeros(len(number_K), dtype=bool)

    def held(asked: bool, turns: int, rule: Callable[[], Flags]) -> Flags:
        """A rule over the last ``turns``; not computed where no row is late enough (most rows of a short dialogue)."""
        return late_K & rule() if asked and longest >= max(turns, rules.min_turns) else never_K

    steps = _Steps(known_KA, deficit_KA)
    holds = [
        held(rules.success, 1, lambda: need_met(position_KA, deficit_KA, rules.alpha)),
        held(rules.collapse, COLLAPSE_TURNS, lambda: _collapse(steps, number_K)),
        held(rules.regression, REGRESSION_TURNS, lambda: _regression(norm(position_KA), steps, number_K)),
        held(rules.oscillation, OSCILLATION_TURNS, lambda: _oscillation(position_KA, known_KA, number_K)),
        number_K >= (rules.max_turns or np.inf),
    ]
    code_K = np.zeros(len(number_K), dtype=np.int64)
    for code in range(len(holds), 0, -1):  # of several the first in the list counts, so it comes last
        code_K[holds[code - 1]] = code
    return code_K


def _threshold(need: FloatArray, alpha: float) -> FloatArray:
    return np.asarray((alpha + ROUNDING) * need)


class _Steps:
    """dE of every row (N,), and whether it is below 0 by more than rounding; computed when a rule asks."""

    def __init__(self, known_KA: FloatArray, deficit_KA: FloatArray) -> None:
        self._known_KA, self._deficit_KA = known_KA, deficit_KA

    @cached_property
    def energy_K(self) -> FloatArray:
        return energy_step(self._known_KA, self._deficit_KA)

    @cached_property
    def negative_K(self) -> Flags:
        return np.asarray(self.energy_K < -ROUNDING * norm(self._known_KA))


def _collapse(steps: _Steps, number_K: Ints) -> Flags:
    all_negative_K = _window_sum(steps.negative_K, COLLAPSE_TURNS) == COLLAPSE_TURNS
    return np.asarray((number_K >= COLLAPSE_TURNS) & all_negative_K)


def _regression(length_K: FloatArray, steps: _Steps, number_K: Ints) -> Flags:
    size = REGRESSION_SPREAD_TURNS
    mean_K = _window_sum(length_K, size) / size
    squares_K = np.zeros_like(length_K)
    for lag in range(size):
        squares_K += (_lagged(length_K, lag) - mean_K) ** 2
    still_K = np.sqrt(squares_K / (size - 1)) < REGRESSION_SPREAD
    mostly_negative_K = _window_sum(steps.negative_K, REGRESSION_TURNS) > REGRESSION_SHARE * REGRESSION_TURNS
    losing_K = _window_sum(steps.energy_K, REGRESSION_TURNS) < REGRESSION_ENERGY
    return np.asarray((number_K >= REGRESSION_TURNS) & still_K & mostly_negative_K & losing_K)


def _oscillation(position_KA: FloatArray, increment_KA: FloatArray, number_K: Ints) -> Flags:
    size = OSCILLATION_TURNS
    net_K = np.zeros(len(position_KA))
    for coordinate_K in position_KA.T:
        net_K += np.abs(coordinate_K - _lagged(coordinate_K, size - 1))
    moved_K = _window_sum(np.abs(increment_KA).sum(axis=-1), size)
    return np.asarray((number_K >= size) & (net_K < OSCILLATION_DISTANCE) & (moved_K >= OSCILLATION_DISTANCE))


def _window_sum(values_K: NDArray[np.generic], size: int) -> FloatArray:
    """Sum of the last ``size`` values up to each row, newest first: the order never depends on the rows before."""
    total = np.zeros(len(values_K))
    for lag in range(size):
        total += _lagged(values_K, lag)
    return total


def _lagged(values_K: NDArray[np.generic], lag: int) -> FloatArray:
    """The values ``lag`` rows earlier; 0 where there is no such row."""
    shifted = np.zeros(len(values_K))
    shifted[lag:] = values_K[: max(len(values_K) - lag, 0)]
    return shifted


def _with_nan(increment_KA: ArrayLike | Sequence[Sequence[float] | None], shape: tuple[int, ...]) -> FloatArray:
    """Increments (K, A) with a row of NaN for each None."""
    missing = [np.nan] * shape[-1]
    rows = [missing if row is None else row for row in increment_KA]  # type: ignore[union-attr]
    increment = np.asarray(rows, dtype=np.float64).reshape(-1, shape[-1])
    if increment.shape != shape:
        raise InputError(f"Got {shape} positions but {increment.shape} increments; expected one of each a turn.")
    return increment
