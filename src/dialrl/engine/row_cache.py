"""Keys and values of a block of dialogues: one row a dialogue, written in place, without gaps.

transformers' own cache grows by copying everything at every token and gives all rows one length. Here a row holds the
token at position p in column p + 1, whatever the other rows hold; column 0 takes
padding and is never attended to by a real token. Not here: whose row it is (``dialrl.engine.hf``).
"""

from collections.abc import Sequence
from typing import Any

import torch
from transformers import Cache

_COLUMN_STEP = 64


class RowCache(Cache):  # type: ignore[misc]  # transformers is untyped here
    """One pair of buffers a layer, (rows, heads, columns, head width), made at a layer's first use.

    Before each forward pass ``place`` says where its tokens go. ``rows`` and ``columns`` are capacities.
    """

    def __init__(self) -> None:
        super().__init__(layers=[])
        self.rows = 0
        self.columns = 0
        self._buffers: list[list[torch.Tensor]] = []
        self._first_row = 0
        self._width = 0
        self._used_columns = 0
        self._columns_RT: torch.Tensor = torch.empty(0, dtype=torch.long)
        self._rows_R1: torch.Tensor = torch.empty(0, dtype=torch.long)

    def reserve(self, rows: int, columns: int) -> None:
        """Make room for at least so many rows and columns; what is stored stays."""
        if rows <= self.rows and columns <= self.columns:
            return
        self.rows = max(rows, self.rows)
        # A quarter more than asked for, so that a growing dialogue does not copy its cache at every turn.
        if columns > self.columns:
            self.columns = -(-(columns + columns // 4) // _COLUMN_STEP) * _COLUMN_STEP
        self._buffers = [[self._enlarged(buffer) for buffer in pair] for pair in self._buffers]

    def place(self, first_row: int, columns_RT: torch.Tensor, width: int) -> None:
        """The next tokens (R, T) go to ``columns_RT`` of rows from ``first_row``, and see columns below ``width``."""
        self._first_row, self._columns_RT, self._width = first_row, columns_RT, width
        self._used_columns = max(self._used_columns, width)
        rows = torch.arange(first_row, first_row + len(columns_RT), device=columns_RT.device)
        self._rows_R1 = rows.unsqueeze(-1)

    def move(self, moves: Sequence[tuple[int, int]]) -> None:
        """For each (target, source), row ``target`` becomes a copy of what row ``source`` held before the call."""
        if not moves:
            return
        targets, sources = torch.tensor(moves, device=self._buffers[0][0].device).T
        for pair in self._buffers:
            for buffer in pair:
                used = buffer[:, :, : self._used_columns]
                used[targets] = used[sources]

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Called by each attention layer: store the new keys and values, give those to attend to."""
        while len(self._buffers) <= layer_idx:
            self._buffers.append([self._new(key_states), self._new(value_states)])
        keys, values = self._buffers[layer_idx]
        keys[self._rows_R1, :, self._columns_RT] = key_states.transpose(1, 2)
        values[self._rows_R1, :, self._columns_RT] = value_states.transpose(1, 2)
        rows = slice(self._first_row, self._first_row + len(self._columns_RT))
        return keys[rows, :, : self._width], values[rows, :, : self._width]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self._width

    def _new(self, like: torch.Tensor) -> torch.Tensor:
        # Zeros: a masked column still enters the weighted sum, with weight 0, and 0 x NaN would be NaN.
        return like.new_zeros((self.rows, like.shape[1], self.columns, like.shape[3]))

    def _enlarged(self, buffer: torch.Tensor) -> torch.Tensor:
        larger = self._new(buffer)
        larger[: buffer.shape[0], :, : buffer.shape[2]] = buffer
        return larger
