"""Stored EmoBench answers as published in 2024: a CSV file for each language and order, several draws a row.

The file is named ``MODEL-LANGUAGE[_cot][ORDER].csv``; a row is an item (its number is its id) with the right place and
one ``Pred`` column a draw, -1 where nothing was parsed. The rows hold their own choices, so no questions are needed.
Not here: the vote.
"""

import ast
import csv
import io
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from dialrl.errors import InputError, MissingInputError
from dialrl.evaluate.emobench_score import Answered, Order

_NAME = re.compile(r"-(?P<language>[a-z]{2}(?:_cot)?)(?P<order>[0-9])?\.csv")
# Task -> the prefix of the columns of each part.
_PREFIXES = {"EA": ("",), "EU": ("Emo ", "Cause ")}


def read_csv_answers(paths: Iterable[Path]) -> list[Answered]:
    """The answers of all files by item. Raises InputError naming file, line and field."""
    found: dict[tuple[str, str, str], Answered] = {}
    for path in paths:
        named = _NAME.search(path.name)
        if named is None:
            raise InputError(
                f"'{path.name}' does not say its language; expected MODEL-en.csv, MODEL-zh2.csv, MODEL-en_cot1.csv ..."
            )
        _read(path, named["language"], int(named["order"] or 0), found)
    return list(found.values())


def _read(path: Path, language: str, number: int, found: dict[tuple[str, str, str], Answered]) -> None:
    for item, row in enumerate(_rows(path), start=1):
        sizes = [row.choices(prefix) for prefix in row.prefixes]
        chance = 1.0
        for size in sizes:
            chance /= size
        answered = found.setdefault((row.task, language, str(item)), Answered(row.task, language, str(item), chance))
        if number in answered.orders:
            raise row.fault("", f"order {number} of language '{language}' was read from another file already")
        right = tuple(row.place(f"{prefix}Label", size) for prefix, size in zip(row.prefixes, sizes, strict=True))
        if None in right:
            raise row.fault(f"{row.prefixes[right.index(None)]}Label", "got -1; expected the place of the right answer")
        order = Order(tuple(place for place in right if place is not None))
        for draw in range(1, row.draws + 1):
            order.samples[draw] = tuple(
                row.place(f"{prefix}Pred {draw}", size) for prefix, size in zip(row.prefixes, sizes, strict=True)
            )
        answered.orders[number] = order


@dataclass(frozen=True)
class _Row:
    path: Path
    line: int
    cells: Mapping[str, str]
    task: str
    draws: int

    @property
    def prefixes(self) -> tuple[str, ...]:
        return _PREFIXES[self.task]

    def fault(self, field: str, problem: str) -> InputError:
        where = f", field '{field}'" if field else ""
        return InputError(f"'{self.path}', line {self.line}{where}: {problem}.")

    def choices(self, prefix: str) -> int:
        """Number of choices, written as a list of texts."""
        field = f"{prefix}Choices"
        text = self.cells[field] or ""
        try:
            listed = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            listed = None
        if not isinstance(listed, list) or len(listed) < 2:
            raise self.fault(field, f"got '{text:.60}'; expected a list of choices")
        return len(listed)

    def place(self, field: str, size: int) -> int | None:
        """A place from 0; None for -1."""
        text = (self.cells[field] or "").strip()
        if not re.fullmatch(r"-1|[0-9]+", text) or int(text) >= size:
            raise self.fault(field, f"got '{text}'; expected 0 to {size - 1}, or -1 where nothing was parsed")
        return None if text == "-1" else int(text)


def _rows(path: Path) -> list[_Row]:
    if not path.is_file():
        raise MissingInputError(f"'{path}' does not exist; expected a CSV file of EmoBench answers.")
    content = path.read_bytes()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = 1 + content.count(b"\n", 0, error.start)
        raise InputError(f"'{path}', line {line} is not UTF-8. Write the file as UTF-8.") from None
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    columns = list(reader.fieldnames or ())
    task = "EU" if "Emo Label" in columns else "EA"
    draws = sum(re.fullmatch(rf"{_PREFIXES[task][0]}Pred [0-9]+", name) is not None for name in columns)
    needed = [
        f"{p}{n}" for p in _PREFIXES[task] for n in ("Choices", "Label", *(f"Pred {d + 1}" for d in range(draws)))
    ]
    absent = [name for name in needed if name not in columns]
    if absent or not draws:
        raise InputError(
            f"'{path}', line 1: lacks the column '{(absent or ['Pred 1'])[0]}'; it has {', '.join(columns)}."
        )
    try:
        rows = [_Row(path, reader.line_num, cells, task, draws) for cells in reader]
    except csv.Error as error:
        raise InputError(f"'{path}', line {reader.line_num} is no valid CSV ({error}).") from None
    if not rows:
        raise InputError(f"'{path}' holds no answers.")
    return rows
