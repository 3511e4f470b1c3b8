"""What a turn or a dialogue is worth when dialogues are chosen and replies preferred; None where a grade is missing.

A value that was filled in for a missing judgement is none: a return counts only if every reward in it is known, and a
gain only if positions before and after it were judged. Not here: pairs, and how the columns are computed.
"""

from collections.abc import Sequence
from itertools import pairwise

from dialrl.config import nearest
from dialrl.errors import UsageError
from dialrl.state.model import zone_distance
from dialrl.trajectory.exporters.chat import Row, counted_rows
from dialrl.trajectory.exporters.config import Measure

NEEDS: dict[Measure, tuple[str, ...]] = {
    "return": ("return",),
    "reward": ("reward",),
    "gain": ("position", "deficit"),
    "advantage": ("advantage",),
}
DEFAULTS: tuple[Measure, ...] = ("return", "reward", "gain")


def chosen_measure(by: Measure | None, names: Sequence[str], *, where: str) -> Measure:
    """The measure asked for, or the first that the file has the columns of. Raises UsageError when there is none."""
    able = [measure for measure in NEEDS if all(name in names for name in NEEDS[measure])]
    found = by if by is not None else next((measure for measure in DEFAULTS if measure in able), None)
    if found is None or found not in able:
        wanted = found or "a ranking"
        raise UsageError(
            f"{where} cannot be ranked by {wanted}: it lacks {', '.join(NEEDS[found or 'gain'])}. It can by:"
            f" {', '.join(able) or 'nothing (run dialrl judge first)'}.{nearest(str(by), able) if by else ''}"
        )
    return found


def turn_worth(rows: Sequence[Row], measure: Measure, *, until_end: bool = False) -> list[float | None]:
    """Worth of each counted turn of one dialogue.

    Example, gain, one axis, deficit -5, positions -3, -3 (judgement missing), -2: 2, None, None, since the last gain
    starts from a position that was not judged.
    """
    counted = counted_rows(rows, until_end=until_end)
    known = [_is_judged(row) for row in counted]
    if measure == "gain":
        values = _gains(counted)
        known = [here and before for here, before in zip(known, [True, *known], strict=False)]
    else:
        values = [row[measure] for row in counted]
    if measure == "return":
        known = [all(known[place:]) for place in range(len(known))]
    return [value if sure else None for value, sure in zip(values, known, strict=True)]


def dialogue_worth(rows: Sequence[Row], measure: Measure, *, until_end: bool = False) -> float | None:
    """Worth of a dialogue: its first return, or the sum of the turns' rewards, gains or advantages."""
    worth = turn_worth(rows, measure, until_end=until_end)
    if measure == "return":
        return worth[0] if worth else None
    known = [value for value in worth if value is not None]
    return sum(known) if known and len(known) == len(worth) else None


def _is_judged(row: Row) -> bool:
    """False where the turn's judgement or its reward is missing."""
    return row.get("judge_status") != "missing" and ("reward" not in row or row["reward"] is not None)


def _gains(counted: Sequence[Row]) -> list[float | None]:
    if any(row["deficit"] is None or row["position"] is None for row in counted):
        return [None] * len(counted)
    distance = zone_distance([counted[0]["deficit"], *(row["position"] for row in counted)])
    return [float(before - after) for before, after in pairwise(distance)]
