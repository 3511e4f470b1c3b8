"""Prefill and decoding of a block of rows over a ``RowCache``: numbers in, numbers out.

Everything that decides a batch (grouping, dropping of ended rows) follows from the rows themselves, so the same calls
give the same bits. Logits exist at the last position of a row only. Not here: requests (``dialrl.engine.hf``).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from dialrl.engine.attention_mask import AttentionMasks
from dialrl.engine.base import SamplingSettings
from dialrl.engine.row_cache import RowCache
from dialrl.engine.sampling import draw

_PREFILL_TOKENS = 16_384  # of one forward pass, padding included
_PREFILL_WIDTH = 2_048  # columns of one forward pass; longer prompts go in several
_KEPT_SHARE = 0.75  # rows are dropped once at most this share of those computed is unfinished


@dataclass(frozen=True)
class Drawn:
    """Per row, in the order given: ``tokens_RT`` and ``logprobs_RT``, of which the first ``lengths_R`` count.

    ``stopped_R``: ended at a stop token. ``order``: cache row i now holds the given row ``order[i]``.
    """

    tokens_RT: np.ndarray
    logprobs_RT: np.ndarray
    lengths_R: np.ndarray
    stopped_R: np.ndarray
    order: np.ndarray


class Constraint(Protocol):
    """Follows the tokens of each row; ``given_R`` are rows as they were given, ``ended_R`` those that are done."""

    def restrict(self, given_R: np.ndarray, ended_R: np.ndarray, logits_RV: torch.Tensor) -> torch.Tensor:
        """Logits (R, V) with -inf at what may not come next."""

    def accept(self, given_R: np.ndarray, ended_R: np.ndarray, tokens_R: np.ndarray) -> None:
        """Take the tokens (R,) that were drawn."""


def prefill_groups(widths: Sequence[int]) -> list[tuple[int, int]]:
    """Consecutive rows ``[first, last)`` that go through the model together: bounded in tokens, little padding.

    Rows of widths 40, 38, 36, 5, 4 make the groups (0, 3) and (3, 5).
    """
    groups = []
    first = 0
    for row, width in enumerate(widths):
        widest = max(widths[first:row], default=width)
        too_large = (row + 1 - first) * max(widest, width) > _PREFILL_TOKENS
        if row > first and (too_large or 2 * width < widest):
            groups.append((first, row))
            first = row
    return [*groups, (first, len(widths))]


class BlockDecoder:
    """One model, one cache. Rows are those of the cache, from 0."""

    def __init__(self, model: Any, cache: RowCache, stop_ids: Sequence[int]) -> None:
        self._model, self._cache = model, cache
        self._device = model.device
        self._masks = AttentionMasks(model.config, model.dtype)
        self._stop_ids = np.asarray(sorted(stop_ids))

    def prefill(self, new_ids: Sequence[Sequence[int]], starts: Sequence[int], *, first_row: int = 0) -> torch.Tensor:
        """Logits (R, V) after the new ids of rows from ``first_row`` on; they begin at position ``starts[row]``."""
        widths = [len(ids) for ids in new_ids]
        parts = [
            self._prefill_group(first_row + first, new_ids[first:last], starts[first:last])
            for first, last in prefill_groups(widths)
        ]
        return torch.cat(parts)

    def _prefill_group(self, first: int, new_ids: Sequence[Sequence[int]], starts: Sequence[int]) -> torch.Tensor:
        width = max(len(ids) for ids in new_ids)
        ids_RT = np.zeros((len(new_ids), width), dtype=np.int64)
        positions_RT = np.zeros_like(ids_RT)
        columns_RT = np.zeros_like(ids_RT)
        for row, (ids, start) in enumerate(zip(new_ids, starts, strict=True)):
            ids_RT[row, width - len(ids) :] = ids
            positions_RT[row, width - len(ids) :] = np.arange(start, start + len(ids))
            columns_RT[row, width - len(ids) :] = np.arange(start + 1, start + len(ids) + 1)
        for left in range(0, width, _PREFILL_WIDTH):
            part = slice(left, left + _PREFILL_WIDTH)
            logits_RV = self._forward(ids_RT[:, part], positions_RT[:, part], columns_RT[:, part], first)
        return logits_RV

    def decode(
        self,
        logits_RV: torch.Tensor,
        lengths_R: np.ndarray,
        uniforms_RT: np.ndarray,
        limits_R: np.ndarray,
        settings: SamplingSettings,
        constraint: Constraint | None = None,
    ) -> Drawn:
        """Draw until every row has stopped or reached its limit. ``lengths_R``: ids in the cache by row.

        ``constraint`` says which tokens may come next.
        """
        rows = len(lengths_R)
        order, lengths, ended = np.arange(rows), lengths_R.copy(), np.zeros(rows, dtype=bool)
        tokens_RT = np.zeros((rows, int(limits_R.max())), dtype=np.int64)
        logprobs_RT = np.zeros(tokens_RT.shape)
        counts_R, stopped_R = limits_R.copy(), np.zeros(rows, dtype=bool)
        active = rows
        for step in range(tokens_RT.shape[1]):
            given = order[:active]
            numbers = torch.from_numpy(uniforms_RT[given, step]).to(self._device)
            if constraint is not None:
                logits_RV = constraint.restrict(given, ended[:active], logits_RV)
            tokens, logprobs = (drawn.cpu().numpy() for drawn in draw(logits_RV, numbers, settings))
            tokens_RT[given, step], logprobs_RT[given, step] = tokens, logprobs
            if constraint is not None:
                constraint.accept(given, ended[:active], tokens)
            stops = np.isin(tokens, self._stop_ids) & ~ended[:active]
            stopped_R[given[stops]] = True
            counts_R[given[stops]] = step + 1
            ended[:active] |= stops | (limits_R[given] <= step + 1)
            unfinished = active - int(ended[:active].sum())
            if unfinished == 0:
                break
            if unfinished <= _KEPT_SHARE * active:
                moved = self._unfinished_first(ended[:active], unfinished)
                order[:active], lengths[:active], ended[:active] = (a[:active][moved] for a in (order, lengths, ended))
                tokens, active = tokens[moved], unfinished
            # An ended row stays where it is: what it writes there is overwritten when its dialogue goes on.
            now = lengths[:active, None]
            logits_RV = self._forward(tokens[:active, None], now, now + 1, 0)
            lengths[:active] += ~ended[:active]
        return Drawn(tokens_RT, logprobs_RT, counts_R, stopped_R, order)

    def _unfinished_first(self, ended: np.ndarray, unfinished: int) -> np.ndarray:
        """Swap ended rows in front with unfinished ones behind; new row i is what row ``result[i]`` was."""
        places = np.arange(len(ended))
        holes = places[:unfinished][ended[:unfinished]]
        movers = places[unfinished:][~ended[unfinished:]]
        targets, sources = np.concatenate([holes, movers]), np.concatenate([movers, holes])
        self._cache.move(list(zip(targets.tolist(), sources.tolist(), strict=True)))
        places[targets] = sources
        return places

    def _forward(
        self, ids_RT: np.ndarray, positions_RT: np.ndarray, columns_RT: np.ndarray, first_row: int
    ) -> torch.Tensor:
        """Logits (R, V) at the last column."""
        ids, positions, columns = (
            torch.from_numpy(np.ascontiguousarray(array)).to(self._device)
            for array in (ids_RT, positions_RT, columns_RT)
        )
        width = int(positions_RT.max()) + 2
        self._cache.reserve(first_row + len(ids), width)
        self._cache.place(first_row, columns, width)
        output = self._model(
            input_ids=ids,
            attention_mask=self._masks.of(positions, columns, width),
            position_ids=positions,
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        )
        logits_RV: torch.Tensor = output.logits[:, -1]
        return logits_RV
