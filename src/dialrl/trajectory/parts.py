"""Work kept while a stage makes a file dialogue by dialogue, so that a killed run continues where it was.

A stage that cannot stream (rollout, judge) works in numbered blocks; each finished block becomes one small file in the
hidden folder ``.OUTPUT.parts`` beside the output, appearing only when complete. On ``--resume`` the blocks that are
there are taken as they are and the others made; at the end all are joined into the output and the folder goes. The
folder remembers the semantic settings, and refuses to continue under others, naming the keys that differ. The
journal of external calls (``dialrl.endpoint.journal``) lies there too. Not here: what a block holds.
"""

import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dialrl.config import differing_keys
from dialrl.errors import OutputExistsError, UsageError
from dialrl.trajectory.atomic import atomic_path
from dialrl.trajectory.lineage import Lineage
from dialrl.trajectory.schema import schema_for
from dialrl.trajectory.writer import TrajectoryWriter, refuse_existing


def refuse_unfinished(output: Path, *, overwrite: bool) -> None:
    """Raise OutputExistsError where finished blocks of ``output`` wait for --resume."""
    folder = _folder(output)
    if (folder / "identity.json").exists() and not overwrite:
        raise OutputExistsError(
            f"An unfinished '{output}' exists (in '{folder}'). Continue it with --resume, or start over with"
            " --overwrite."
        )


class Parts:
    """The blocks of one unfinished output.

    ``identity`` is everything the result depends on (settings, input digests); plain JSON values.
    """

    def __init__(self, output: Path, identity: Mapping[str, Any], *, overwrite: bool, resume: bool) -> None:
        self.output = output
        self.folder = _folder(output)
        self._identity_file = self.folder / "identity.json"
        if not resume:
            refuse_existing(output, overwrite=overwrite)
            self._begin(identity, overwrite=overwrite)
        elif self._identity_file.exists() and not (overwrite and self._differences(identity)):
            self._continue(identity)
        else:
            self._begin(identity, overwrite=True)

    def _begin(self, identity: Mapping[str, Any], *, overwrite: bool) -> None:
        refuse_unfinished(self.output, overwrite=overwrite)
        shutil.rmtree(self.folder, ignore_errors=True)
        text = json.dumps(identity, sort_keys=True, ensure_ascii=False)
        with atomic_path(self._identity_file, part_of=self.output) as temporary:
            temporary.write_text(text, encoding="utf-8")

    def _continue(self, identity: Mapping[str, Any]) -> None:
        differences = self._differences(identity)
        if differences:
            raise UsageError(
                f"Cannot resume '{self.output}': its settings differ: {'; '.join(differences)}."
                " Give the settings it was started with, or use --overwrite."
            )

    def _differences(self, identity: Mapping[str, Any]) -> list[str]:
        before = json.loads(self._identity_file.read_text(encoding="utf-8"))
        return differing_keys(_flat(before), _flat(json.loads(json.dumps(identity))))

    @property
    def journal_path(self) -> Path:
        """The journal of external calls, which goes when the output is there."""
        return journal_path(self.output)

    def done(self) -> set[int]:
        """Numbers of the finished blocks."""
        return {int(path.stem) for path in self.folder.glob("[0-9]*.parquet")}

    def rows(self, block: int) -> int | None:
        """Rows of a finished block; None when it is not there."""
        path = self._path(block)
        return pq.read_metadata(path).num_rows if path.exists() else None

    def write(self, block: int, table: pa.Table) -> None:
        """Keep a finished block."""
        with atomic_path(self._path(block), part_of=self.output) as temporary:
            pq.write_table(table, temporary, compression="zstd")

    def read(self, block: int) -> pa.Table:
        """A finished block."""
        return pq.read_table(self._path(block)).replace_schema_metadata(None)

    def join(self, columns: Sequence[str], tables: Iterable[pa.Table], lineage: Lineage) -> None:
        """Write the output from ``tables`` (the blocks, in file order), then remove the folder."""
        with TrajectoryWriter(self.output, schema_for(columns)) as writer:
            for table in tables:
                writer.write(table.select(writer.schema.names))
            writer.finish(lineage)
        self.clear()

    def clear(self) -> None:
        """Remove the folder, once the output is there."""
        shutil.rmtree(self.folder)

    def _path(self, block: int) -> Path:
        return self.folder / f"{block:06d}.parquet"


def discard_parts(output: Path) -> None:
    """Remove what a kill between publishing ``output`` and clearing its parts left behind."""
    shutil.rmtree(_folder(output), ignore_errors=True)


def journal_path(output: Path) -> Path:
    """Where the journal of external calls of an unfinished ``output`` lies."""
    return _folder(output) / "calls.jsonl"


def _folder(output: Path) -> Path:
    return output.with_name(f".{output.name}.parts")


def _flat(identity: Mapping[str, Any]) -> dict[str, Any]:
    """One level of nesting taken out, so that a difference names the option and not all of them."""
    flat: dict[str, Any] = {}
    for key, value in identity.items():
        flat.update(value if isinstance(value, Mapping) else {key: value})
    return flat
