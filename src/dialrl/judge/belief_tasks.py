"""A dialogue's rows to belief tasks, and beliefs back to its rows.

Belief k is taken where turn k begins: the ids of its segment up to and with the header of its reply. A dialogue that
was cut off, with messages after its last reply, has one more, after ``final_ids`` and the header that would follow.
Turn k has belief k before it and belief k + 1 after it. Pure: no model, no files.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from dialrl.errors import InputError
from dialrl.model.belief.gold import GoldAlias
from dialrl.model.belief.tree import BeliefTask
from dialrl.trajectory.rows import row_name

Row = dict[str, Any]
Floats = npt.NDArray[np.float64]
ENDED_BY_POLICY = ("answer", "format_failure")


@dataclass(frozen=True)
class DialogueTasks:
    """Tasks of one dialogue, one a segment; ``places``: the number of the belief that each cut of each task gives."""

    rows: Sequence[Row]
    aliases: tuple[GoldAlias, ...]
    tasks: list[BeliefTask] = field(default_factory=list)
    places: list[tuple[int, ...]] = field(default_factory=list)

    def columns(self, beliefs: Sequence[Floats]) -> list[Row]:
        """Belief columns of the rows, from (cuts, aliases) a task; not finite or not computed: null.

        Example: beliefs -5, -3 at two turns, the second an answer: before -5, -3, after -3, null.
        """
        best: dict[int, tuple[float, str]] = {}
        for places, belief in zip(self.places, beliefs, strict=True):
            for place, values in zip(places, belief, strict=True):
                if np.isfinite(values).all():
                    top = int(values.argmax())
                    best[place] = (float(values[top]), self.aliases[top].text)
        return [_columns(row, best.get(number), best.get(number + 1)) for number, row in enumerate(self.rows)]


def _columns(row: Row, before: tuple[float, str] | None, after: tuple[float, str] | None) -> Row:
    return {
        "group_id": row["group_id"],
        "sample": row["sample"],
        "turn": row["turn"],
        "belief_before": None if before is None else before[0],
        "belief_after": None if after is None else after[0],
        "belief_alias": None if after is None else after[1],
    }


def dialogue_tasks(
    rows: Sequence[Row], aliases: Sequence[GoldAlias], *, header_ids: Sequence[int], limit_tokens: int | None
) -> DialogueTasks:
    """Tasks of the dialogue ``rows``; none without answers, or for a dialogue that failed in the rollout.

    ``header_ids``: the header of a reply, put behind ``final_ids``. ``limit_tokens``: cuts from which the
    longest answer would reach beyond it are left out. Raises InputError for turns without token ids.
    """
    made = DialogueTasks(rows, tuple(aliases))
    if not aliases or rows[0].get("status") == "error" or rows[0].get("reply_ids") is None:
        return made
    branch = max(len(alias.wrapper_ids) + len(alias.gold_ids) for alias in aliases)
    trunk, cuts = list[int](), list[tuple[int, int]]()
    for number, row in enumerate(rows):
        if number and row["segment"] != rows[number - 1]["segment"]:
            _close(made, trunk, cuts, branch, limit_tokens)
            trunk, cuts = [], []
        trunk += _ids(row, "prompt_ids")
        cuts.append((len(trunk), number))
        trunk += _ids(row, "reply_ids")
    last = rows[-1]
    if last.get("final_ids") and last.get("end_reason") not in ENDED_BY_POLICY:
        trunk += [*last["final_ids"], *header_ids]
        cuts.append((len(trunk), len(rows)))
    _close(made, trunk, cuts, branch, limit_tokens)
    return made


def _close(
    made: DialogueTasks, trunk: Sequence[int], cuts: Sequence[tuple[int, int]], branch: int, limit: int | None
) -> None:
    kept = [(cut, place) for cut, place in cuts if limit is None or cut + branch <= limit]
    if kept:
        longest = kept[-1][0]  # what stands after the last cut changes nothing
        ids = np.array(trunk[:longest], dtype=np.int64)
        made.tasks.append(BeliefTask(ids, tuple(cut for cut, _ in kept), made.aliases))
        made.places.append(tuple(place for _, place in kept))


def _ids(row: Row, name: str) -> Sequence[int]:
    ids: Sequence[int] | None = row.get(name)
    if ids is None:
        raise InputError(
            f"{row_name(row)} has no {name}: beliefs are computed on the ids that were sampled. Roll out with an engine"
            " that gives ids."
        )
    return ids
