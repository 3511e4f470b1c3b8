"""Where a file comes from: one record a stage, kept in the file, holding only what its inputs determine.

The lineage stands in one Parquet metadata key together with the schema version, so equal inputs give equal bytes. What
differs from run to run (times, cost, host, attempts) goes to ``FILE.run.json`` beside the file.
"""

import json
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from dialrl.errors import InputError
from dialrl.trajectory.atomic import write_text
from dialrl.trajectory.schema import SCHEMA_VERSION, STAGES, outlives

METADATA_KEY = b"dialrl"


@dataclass(frozen=True)
class InputFile:
    """An input of a stage: its name without folders, and its content's digest."""

    name: str
    digest: str


@dataclass(frozen=True)
class StageRecord:
    """What one stage did: its semantic options, inputs, seed, counts, and details such as sampling or policy digest.

    ``warnings`` are the stage's own sentences, so that a resumed run can say them again.
    """

    stage: str
    options: Mapping[str, Any] = field(default_factory=dict)
    inputs: Sequence[InputFile] = ()
    seed: int | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=lambda: package_versions("dialrl"))
    warnings: Sequence[str] = ()


@dataclass(frozen=True)
class Parent:
    """The file a slim file completes: its name (in the same folder) or relative path, and its digest."""

    path: str
    digest: str


@dataclass(frozen=True)
class Lineage:
    """The records of all stages a file went through, oldest first; ``parent`` stands in slim files only.

    A file joined from several has the records of all of them: a stage then has one for each part.
    """

    records: tuple[StageRecord, ...] = ()
    parent: Parent | None = None

    def record(self, stage: str) -> StageRecord | None:
        """The latest record of ``stage``: of an output, what that stage wrote itself.

        Of an *input* it may be that of one part only; ``trajectory.agreement`` looks at every part.
        """
        return next((record for record in reversed(self.records) if record.stage == stage), None)

    def all_of(self, stage: str) -> tuple[StageRecord, ...]:
        """Every record of ``stage``, oldest first."""
        return tuple(record for record in self.records if record.stage == stage)

    @property
    def origins(self) -> tuple[StageRecord, ...]:
        """Where the dialogues come from: rollouts, and imports and the like, which stand in their place."""
        return tuple(record for record in self.records if _rank(record) == 0)

    @classmethod
    def joined(cls, parts: Sequence["Lineage"]) -> "Lineage":
        """The lineage of rows from several files: every record of each, equal ones once, in order of the stages."""
        if len(parts) == 1:
            return parts[0]
        placed = [(_rank(record), place, record) for part in parts for place, record in enumerate(part.records)]
        placed.sort(key=lambda entry: entry[:2])
        return cls(tuple({_as_text(record): record for _, _, record in placed}.values()))

    def after(self, record: StageRecord) -> "Lineage":
        """This lineage with one more record, for a whole (not slim) file."""
        return Lineage((*self.records, record))

    def outliving(self, rerun: str) -> tuple[StageRecord, ...]:
        """The records that still hold once the stage ``rerun`` has run again."""
        first = STAGES[0]  # imports and the like stand in the place of a rollout
        return tuple(r for r in self.records if outlives(r.stage if r.stage in STAGES else first, rerun=rerun))

    def to_metadata(self) -> dict[bytes, bytes]:
        """The Parquet metadata entry: sorted JSON, so equal lineages are equal bytes."""
        content: dict[str, Any] = {"schema_version": SCHEMA_VERSION, "lineage": [asdict(r) for r in self.records]}
        if self.parent is not None:
            content["parent"] = asdict(self.parent)
        return {METADATA_KEY: json.dumps(content, sort_keys=True, ensure_ascii=False).encode()}

    @classmethod
    def from_metadata(cls, metadata: Mapping[bytes, bytes] | None, *, where: str) -> "Lineage":
        """Read the entry; raises InputError when it is absent or of another schema version."""
        raw = (metadata or {}).get(METADATA_KEY)
        if raw is None:
            raise InputError(
                f"{where} is a Parquet file but no trajectory file (metadata key 'dialrl' is absent)."
                " Bring logged dialogues in with: dialrl import turns FILE.jsonl -o FILE.parquet"
            )
        content = _content(raw, where)
        found = content.get("schema_version")
        if found != SCHEMA_VERSION:
            raise InputError(
                f"{where} has schema version {found}; this dialrl reads version {SCHEMA_VERSION}."
                " Write it again with the dialrl version named in its lineage, or install that version."
            )
        try:
            records = tuple(_record(entry) for entry in content["lineage"])
            parent = None if content.get("parent") is None else Parent(**content["parent"])
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise InputError(f"{where}: its lineage cannot be read ({error!r}). Write the file again.") from None
        return cls(records, parent)


def _rank(record: StageRecord) -> int:
    return STAGES.index(record.stage) if record.stage in STAGES else 0


def _as_text(record: StageRecord) -> str:
    return json.dumps(asdict(record), sort_keys=True)


def _content(raw: bytes, where: str) -> dict[str, Any]:
    try:
        content = json.loads(raw)
    except ValueError as error:
        raise InputError(f"{where}: metadata key 'dialrl' is no JSON ({error}). Write the file again.") from None
    if not isinstance(content, dict):
        raise InputError(f"{where}: metadata key 'dialrl' holds {content!r:.80}; expected an object.")
    return content


def _record(entry: Mapping[str, Any]) -> StageRecord:
    for name in ("options", "counts", "details", "versions"):
        if not isinstance(entry.get(name, {}), Mapping):
            raise TypeError(f"{name} holds {entry[name]!r:.40}, not an object")
    inputs = tuple(InputFile(**one) for one in entry.get("inputs", ()))
    return StageRecord(**{**entry, "inputs": inputs, "warnings": tuple(entry.get("warnings", ()))})


def package_versions(*names: str) -> dict[str, str]:
    """Installed versions of ``names``; packages that are not installed are left out."""
    found = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def write_run_file(output: Path, *, seconds: float | None, **facts: Any) -> None:
    """Write ``OUTPUT.run.json``: when, how long, on what, and whatever else differs from run to run."""
    _write_run_file(output, time.time(), seconds=None if seconds is None else round(seconds, 3), **facts)


def complete_run_file(output: Path) -> None:
    """Write the run file of a finished ``output`` that a kill left without one: when it was finished, and why no more.

    A file that is there stays as it is.
    """
    if not run_file(output).exists():
        note = "the run that made this output was killed before it wrote this file; written by --resume"
        _write_run_file(output, output.stat().st_mtime, seconds=None, note=note)


def run_file(output: Path) -> Path:
    """Where the run file of ``output`` lies."""
    return output.with_name(output.name + ".run.json")


def _write_run_file(output: Path, finished: float, **facts: Any) -> None:
    content = {
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(finished)),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "system": platform.system(),
        **facts,
    }
    write_text(run_file(output), json.dumps(content, indent=2, sort_keys=True) + "\n")
