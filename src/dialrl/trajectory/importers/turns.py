"""``dialrl import turns``: anyone's logged dialogues, one JSON object a turn, as a trajectory file.

``group_id``, ``sample`` and ``turn`` are required; every other key must be a column of the file format (of the stages
rollout and judge, or ``advantage`` computed elsewhere). The key ``reward`` becomes ``reward_given``. Lines may come in
any order. Not here: completing a dialogue (``complete``), types (``json_values``).
"""

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from dialrl.config import nearest
from dialrl.errors import InputError
from dialrl.progress import SILENT, Progress
from dialrl.summary import StageSummary
from dialrl.trajectory.importers.complete import Completer, Turn
from dialrl.trajectory.importers.config import ImportTurnsConfig
from dialrl.trajectory.importers.json_lines import Json, Key, LineIndex, index_lines, read_entry
from dialrl.trajectory.importers.json_values import MisfitError, convert
from dialrl.trajectory.importers.sorted_output import Rows, write_groups
from dialrl.trajectory.lineage import InputFile, StageRecord, write_run_file
from dialrl.trajectory.reader import file_digest
from dialrl.trajectory.schema import COLUMNS, KEYS
from dialrl.trajectory.writer import refuse_existing

STAGE = "import"
RENAMED = {"reward": "reward_given"}
ACCEPTED = tuple(
    name for name, column in COLUMNS.items() if column.stage in ("rollout", "judge") or name == "advantage"
)


def import_turns(
    file: Path | str,
    output: Path,
    config: ImportTurnsConfig | None = None,
    *,
    overwrite: bool = False,
    progress: Progress = SILENT,
) -> StageSummary:
    """Write the turns in ``file`` (JSON lines) as the trajectory ``output``, sorted and completed.

    Raises InputError naming file, line and key for what does not fit; OutputExistsError when ``output`` exists.
    """
    began = time.monotonic()
    config = config or ImportTurnsConfig()
    refuse_existing(output, overwrite=overwrite, resumable=False)
    work = _Work(Path(file), config)
    progress.start("import turns", len(work.index), "turns")
    with work.path.open("rb") as handle:
        write_groups(
            work.rows(handle), output, work.completer.output_columns,
            record=work.record, batch_rows=config.batch_rows, progress=progress,
        )  # fmt: skip
    write_run_file(output, seconds=time.monotonic() - began)
    return work.summary(output)


class _Work:
    """One file to import: its index, and its rows group by group."""

    def __init__(self, path: Path, config: ImportTurnsConfig) -> None:
        self.path = path
        self.config = config
        self.counts: Counter[str] = Counter()
        self._columns: set[str] = set()
        self.index: LineIndex = index_lines(path, self._key)
        self.completer = Completer(path, frozenset(self._columns), config.allow_gaps)

    def rows(self, handle: BinaryIO) -> Iterator[Rows]:
        """The rows of each group, in order."""
        for entries in self.index.sorted_groups():
            turns = [self._turn(handle, entry) for entry in entries]
            rows: Rows = []
            for dialogue in _by_sample(turns):
                rows += self.completer.complete(dialogue)
                self.counts["dialogues"] += 1
                self.counts["dialogues_with_gaps"] += rows[-1]["turn"] != len(dialogue) - 1
            self._count_group(rows)
            yield rows

    def record(self) -> StageRecord:
        return StageRecord(
            STAGE,
            options={"from": "turns", **self.config.semantic_values()},
            inputs=(InputFile(self.path.name, file_digest(self.path)),),
            counts=self._all_counts(),
        )

    def summary(self, output: Path) -> StageSummary:
        figures = {"columns": [name for name in COLUMNS if name in self.completer.output_columns]}
        warnings = []
        if self.counts["groups_with_different_deficits"]:
            warnings.append(
                f"{self.counts['groups_with_different_deficits']} groups have dialogues with different initial"
                " deficits: what the judge found at the start is then part of every baseline."
            )
        if self.counts["dialogues_with_gaps"]:
            warnings.append(f"{self.counts['dialogues_with_gaps']} dialogues have gaps in their turns; time was kept.")
        return StageSummary("import turns", output, self._all_counts(), figures, tuple(warnings))

    def _all_counts(self) -> dict[str, int]:
        names = ("groups", "dialogues", "turns", "missing_judgements", "dialogues_with_gaps")
        return {name: self.counts[name] for name in names}

    def _count_group(self, rows: Rows) -> None:
        self.counts["groups"] += 1
        self.counts["turns"] += len(rows)
        self.counts["missing_judgements"] += sum(row.get("judge_status") == "missing" for row in rows)
        deficits = {tuple(row["deficit"]) for row in rows if row.get("deficit") is not None}
        self.counts["groups_with_different_deficits"] += len(deficits) > 1

    def _key(self, found: Json, line: int) -> Key:
        """Checks the names of one line's keys, remembers its columns, and gives its place."""
        for name in found:
            if name not in ACCEPTED and name not in RENAMED:
                raise InputError(f"'{self.path}', line {line}: {_unknown(name)}")
        for old, new in RENAMED.items():
            if old in found and new in found:
                raise InputError(f"'{self.path}', line {line}: '{old}' and '{new}' are the same column; give one.")
        missing = [key for key in KEYS if found.get(key) is None]
        if missing:
            raise InputError(
                f"'{self.path}', line {line} lacks {', '.join(missing)}; every turn needs {', '.join(KEYS)}."
            )
        self._columns.update(RENAMED.get(name, name) for name in found)
        group, sample, turn = (self._value(found, key, line) for key in KEYS)
        for key, number in (("sample", sample), ("turn", turn)):
            if number < 0:
                raise InputError(f"'{self.path}', line {line}, key '{key}': got {number}; expected 0 or more.")
        return str(group), int(sample), int(turn)

    def _turn(self, handle: BinaryIO, entry: int) -> Turn:
        line = self.index.line[entry]
        found = read_entry(self.index, handle, entry)
        return Turn(line, {RENAMED.get(name, name): self._value(found, name, line) for name in found})

    def _value(self, found: Json, name: str, line: int) -> Any:
        try:
            return convert(found[name], COLUMNS[RENAMED.get(name, name)].type, name)
        except MisfitError as fault:
            raise InputError(f"'{self.path}', line {line}, key '{fault.path}': {fault.problem}.") from None


def _by_sample(turns: list[Turn]) -> Iterator[list[Turn]]:
    """The turns of each dialogue of a group, in order."""
    start = 0
    for place in range(1, len(turns) + 1):
        if place == len(turns) or turns[place].row["sample"] != turns[start].row["sample"]:
            yield turns[start:place]
            start = place


def _unknown(name: str) -> str:
    shown = name.encode("ascii", "backslashreplace").decode("ascii") if not name.isprintable() else name
    if name in COLUMNS:
        stage = COLUMNS[name].stage
        return (
            f"'{shown}' is computed by dialrl {stage}; leave it out. A reward of your own goes under the key 'reward'."
        )
    return f"unknown key '{shown}'.{nearest(name, [*ACCEPTED, *RENAMED])} See: dialrl inspect --schema"
