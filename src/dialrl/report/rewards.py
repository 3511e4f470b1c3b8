"""The reward of each turn of a file: the column ``reward``, or, before ``returns`` has run, the distance gained.

Not here: returns and channels; the distance is the undiscounted channel ``incremental-distance``.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dialrl.state.model import zone_distance
from dialrl.trajectory.layout import Layout, floats

Floats = npt.NDArray[np.float64]


def gains_of(table: pa.Table, layout: Layout) -> Floats:
    """Reward of each turn (N,), NaN where none is known or a stop rule had fired before."""
    if "reward" in table.column_names:
        return floats(table["reward"])
    gain = np.full(layout.rows, np.nan)
    if "position" not in table.column_names or "deficit" not in table.column_names:
        return gain
    names = [name for name in ("deficit", "position", "stop_turn", "turn") if name in table.column_names]
    columns = {name: table[name].to_pylist() for name in names}
    for start, end in zip(layout.dialogue_start[:-1], layout.dialogue_start[1:], strict=True):
        rows = [{name: values[row] for name, values in columns.items()} for row in range(start, end)]
        gain[start:end] = dialogue_gains(rows)
    return gain


def dialogue_gains(rows: Sequence[Mapping[str, Any]]) -> Floats:
    """Distance gained by each turn of one dialogue (K,); NaN where a position is not known or after the stop.

    Example on one axis: deficit (-9), positions (-7), (-7) -> 2, 0.
    """
    gain = np.full(len(rows), np.nan)
    before = rows[0].get("deficit")
    for index, row in enumerate(rows):
        stop, after = row.get("stop_turn"), row.get("position")
        if after is None or before is None or (stop is not None and row["turn"] > stop):
            break
        gain[index] = float(zone_distance(before) - zone_distance(after))
        before = after
    return gain
