"""Groups that teach nothing: all dialogues of the group earned the same rewards at every turn."""

from collections import defaultdict
from collections.abc import Iterable

import pyarrow as pa

from dialrl.state.model import zone_distance


def degenerate_groups(tables: Iterable[pa.Table], candidates: set[str]) -> set[str]:
    """Ids among ``candidates`` whose good dialogues all have equal zone distances turn by turn, and equal outcomes.

    A group with fewer than two good dialogues is degenerate too: nothing is compared.
    """
    paths: dict[str, dict[int, list[tuple[float | None, float | None]]]] = defaultdict(lambda: defaultdict(list))
    for table in tables:
        for row in table.select(["group_id", "sample", "status", "position", "outcome"]).to_pylist():
            if row["group_id"] in candidates and row["status"] == "ok":
                paths[row["group_id"]][row["sample"]].append((_distance(row["position"]), row["outcome"]))
    return {group for group in candidates if _all_equal(list(paths[group].values()))}


def _distance(position: list[float] | None) -> float | None:
    return None if position is None else round(float(zone_distance([position])[0]), 9)


def _all_equal(dialogues: list[list[tuple[float | None, float | None]]]) -> bool:
    return len(dialogues) < 2 or all(path == dialogues[0] for path in dialogues[1:])
