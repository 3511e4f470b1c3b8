"""Which dialogue has which row of the cache, and where the rows of the next call stand.

A plan follows from the requests and from what the last call left, never from timing. Not here: keys and values
(``dialrl.engine.row_cache``), sampling.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from dialrl.engine.base import GenerationRequest


@dataclass(frozen=True)
class Row:
    """A row of the cache: the dialogue it belongs to, and the ids whose keys and values it holds."""

    dialogue: str
    ids: list[int]


@dataclass(frozen=True)
class RowPlan:
    """``requests[i]`` is the request that row i serves; ``starts[i]``: how many of its ids the cache holds already.

    ``moves``: (target, source) rows to copy first, all at once.
    """

    requests: list[int]
    starts: list[int]
    moves: list[tuple[int, int]]

    @property
    def reuses_rows(self) -> bool:
        return any(self.starts)


def plan_rows(rows: Sequence[Row], requests: Sequence[GenerationRequest]) -> RowPlan:
    """Rows stay where they are, free places are filled in order; ids are reused only if they are a real prefix.

    Where widths differ much, the widest come first, so that groups of the prefill have little padding.

    Rows of a, b, c and requests of a and c: a stays in row 0, c moves from row 2 to row 1. With a request of a
    new dialogue d besides, c stays in row 2 and d gets row 1.
    """
    kept = _kept_rows(rows, requests)
    starts = {index: len(rows[row].ids) for index, row in kept.items()}
    order = _order(kept, len(requests))
    widths = [len(request.prompt_ids) - starts.get(index, 0) for index, request in enumerate(requests)]
    if max(widths) * len(widths) > 2 * sum(widths):
        order.sort(key=lambda index: -widths[index])
    moves = [(place, kept[index]) for place, index in enumerate(order) if kept.get(index, place) != place]
    return RowPlan(order, [starts.get(index, 0) for index in order], moves)


def _kept_rows(rows: Sequence[Row], requests: Sequence[GenerationRequest]) -> dict[int, int]:
    """Row by request, where the row can serve it; one row serves one request."""
    row_of = {row.dialogue: number for number, row in enumerate(rows) if row.dialogue}
    kept = {}
    for index, request in enumerate(requests):
        row = row_of.get(request.dialogue)
        if row is not None and _is_real_prefix(rows[row].ids, request.prompt_ids):
            kept[index] = row
            del row_of[request.dialogue]
    return kept


def _order(kept: dict[int, int], count: int) -> list[int]:
    placed = {row: index for index, row in kept.items() if row < count}
    moving = sorted((index for index, row in kept.items() if row >= count), key=lambda index: kept[index])
    others = iter(moving + [index for index in range(count) if index not in kept])
    return [placed[place] if place in placed else next(others) for place in range(count)]


def _is_real_prefix(ids: Sequence[int], prompt_ids: Sequence[int]) -> bool:
    return len(ids) < len(prompt_ids) and list(prompt_ids[: len(ids)]) == list(ids)
