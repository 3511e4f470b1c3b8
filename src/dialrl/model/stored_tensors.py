"""Reads safetensors files: every tensor this project reads comes through here, whole or some of its rows.

A tensor may lie in several files, each holding some of its rows: that is how processes write what they hold without one
of them gathering the whole. Which rows stands in the files' own metadata, so any number of processes can read what any
number wrote. A file that is damaged or cut short is an InputError naming it. Not here: what the tensors mean.
"""

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from dialrl.errors import InputError, MissingInputError

ROWS = "rows"  # metadata: tensor name -> [first row, rows of the whole]


@contextmanager
def opened(file: Path, *, remedy: str) -> Iterator[Any]:
    """The safetensors file, open for reading. Raises InputError with ``remedy`` when it is no whole one."""
    try:
        with safe_open(file, framework="pt") as content:
            yield content
    except FileNotFoundError:
        raise MissingInputError(f"'{file}' does not exist, but is named beside it. {remedy}") from None
    except (SafetensorError, OSError) as error:
        raise InputError(f"'{file}' is damaged or cut short and cannot be read ({error}). {remedy}") from None


def read_tensors(file: Path, *, remedy: str) -> dict[str, torch.Tensor]:
    """All tensors of one file, in memory."""
    with opened(file, remedy=remedy) as content:
        return {name: content.get_tensor(name) for name in content.keys()}  # noqa: SIM118 (no mapping)


@dataclass(frozen=True)
class _Piece:
    file: Path
    first_row: int
    rows: int


@dataclass
class StoredTensor:
    """A tensor on the disk: ``shape`` of the whole, and the files that hold its rows."""

    name: str
    shape: tuple[int, ...]
    remedy: str
    pieces: list[_Piece] = field(default_factory=list)

    def read(self, first: int = 0, last: int | None = None) -> torch.Tensor:
        """Rows ``first`` to ``last`` (all by default) along the first axis; only they are read.

        Example: rows 0-1 in one file and 2-3 in another; ``read(1, 3)`` reads the last of the first file and the first
        of the second. Raises InputError when a file that held some of them is not there.
        """
        if not self.shape:
            return self._values(self.pieces[0], slice(None))
        end = self.shape[0] if last is None else last
        parts, reached = [], first
        for piece in sorted(self.pieces, key=lambda piece: piece.first_row):
            start, stop = max(reached, piece.first_row), min(end, piece.first_row + piece.rows)
            if start == reached < stop:
                parts.append(self._values(piece, slice(start - piece.first_row, stop - piece.first_row)))
                reached = stop
        if reached < end:
            raise InputError(
                f"'{self.pieces[0].file.parent}' lacks rows {reached} to {end} of '{self.name}': a file of another"
                f" process is missing. {self.remedy}"
            )
        if not parts:
            return self._values(self.pieces[0], slice(0, 0))
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _values(self, piece: _Piece, rows: slice) -> torch.Tensor:
        with opened(piece.file, remedy=self.remedy) as content:
            if not self.shape or (rows.start, rows.stop) == (0, piece.rows):
                tensor: torch.Tensor = content.get_tensor(self.name)
            else:
                tensor = content.get_slice(self.name)[rows]
            return tensor


def stored_tensors(files: Iterable[Path], *, remedy: str) -> dict[str, StoredTensor]:
    """The tensors in ``files`` by name; nothing but the headers is read yet."""
    tensors: dict[str, StoredTensor] = {}
    for file in files:
        with opened(file, remedy=remedy) as content:
            rows = json.loads((content.metadata() or {}).get(ROWS, "{}"))
            for name in content.keys():  # noqa: SIM118 (no mapping)
                shape = tuple(content.get_slice(name).get_shape())
                first, total = rows.get(name, (0, shape[0] if shape else 0))
                whole = (total, *shape[1:]) if shape else ()
                stored = tensors.setdefault(name, StoredTensor(name, whole, remedy))
                stored.pieces.append(_Piece(file, first, shape[0] if shape else 0))
    return tensors


def write_tensors(
    tensors: Mapping[str, torch.Tensor], file: Path, rows: Mapping[str, tuple[int, int]] | None = None
) -> None:
    """Write ``file``; ``rows``: (first row, rows of the whole) of tensors that are only a part of one."""
    content = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with system_errors(file):
        save_file(content, file, metadata={ROWS: json.dumps(rows, sort_keys=True)} if rows else None)


@contextmanager
def system_errors(place: Path) -> Iterator[None]:
    """Raise as OSError, naming ``place``, what safetensors only quotes of one: ``... (os error 28)``."""
    try:
        yield
    except SafetensorError as error:
        quoted = re.search(r"\(os error (\d+)\)", str(error))
        if quoted is None:
            raise
        number = int(quoted[1])
        raise OSError(number, os.strerror(number), str(place)) from error
