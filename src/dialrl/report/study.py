"""A study of credit rules that a report was given. Not here: its charts and tables (``study_charts``)."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pyarrow as pa

from dialrl.evaluate.study_figures import Cell, cells
from dialrl.evaluate.study_table import is_study_table, read_table

FILE = "lab.parquet"


@dataclass(frozen=True)
class Study:
    """A table that ``dialrl lab`` wrote."""

    name: str
    table: pa.Table

    @cached_property
    def cells(self) -> list[Cell]:
        return cells(self.table)

    @property
    def settings(self) -> list[str]:
        return list(dict.fromkeys(cell.setting for cell in self.cells))


def study_at(path: Path, name: str) -> Study | None:
    """The study in a file or in the folder of ``dialrl lab study``; None where there is none."""
    file = path / FILE if path.is_dir() else path
    return Study(name, read_table(file)) if file.is_file() and is_study_table(file) else None
