"""The rules by which the state of a dialogue ends it, and their parameters. Light to import: configurations hold it.

Turns count from 1 here: turn t is row ``turn`` = t - 1, so ``min_turns`` 12 first fires on row 11. Source:
docs/state-model.md. Not here: the arithmetic (``stop``).

The rules at turn t >= min_turns, tested in this order; v* points from P_0 straight to the origin, dE = v . v*:

* success: (|P_t| <= alpha |P_0|, *geometric*, or P_t . v* >= -alpha |P_0|, *positional*) and E_t >= |P_0|. As E_t is
  P_t . v* + |P_0|, this holds exactly when P_t . v* >= 0.
* collapse: the last 5 dE are all negative.
* regression: sample standard deviation of the last 5 |P| < 0.5, more than 0.7 * 8 of the last 8 dE negative, and their
  sum < -1.
* oscillation (off by default): the ends of the last 12 positions are closer than 3 in L1 while those turns' |v|_1 add
  up to 3 or more.
* turn_limit: t = max_turns, whatever min_turns says.
"""

from dialrl.config import StageConfig, semantic

REASONS = (None, "success", "collapse", "regression", "oscillation", "turn_limit")


class StopRules(StageConfig):
    """Which rules stop a dialogue, and their parameters (defaults: the published runs; alpha 0.05 in their manual)."""

    min_turns: int = semantic(12, help="first turn (counted from 1) at which a rule on the state may fire", ge=1)
    max_turns: int | None = semantic(None, help="turn at which the dialogue is cut; none: no such limit", ge=1)
    alpha: float = semantic(0.10, help="success thresholds as a share of the deficit's length", ge=0, le=1)
    success: bool = semantic(True, help="stop when the need is met")
    collapse: bool = semantic(True, help="stop after five turns in a row in the wrong direction")
    regression: bool = semantic(True, help="stop when the state stands still and slides back")
    oscillation: bool = semantic(False, help="stop when the state moves and gets nowhere (on in the published runs)")
