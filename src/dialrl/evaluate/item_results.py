"""Results of a benchmark as a Parquet file, one row an item, with what they were made from in its metadata.

Not a trajectory file: these rows have no turns. ``dialrl compare`` reads them back. Not here: scores.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dialrl.config import StageConfig
from dialrl.errors import InputError, MissingInputError
from dialrl.trajectory.atomic import atomic_path
from dialrl.trajectory.lineage import package_versions
from dialrl.trajectory.reader import file_digest
from dialrl.trajectory.writer import refuse_existing

METADATA_KEY = b"dialrl-results"
RESULTS_VERSION = 1
# Every results file has these; a benchmark adds its own.
COMMON = (("scenario_id", pa.string()), ("item", pa.string()), ("score", pa.float64()), ("status", pa.string()))


@dataclass(frozen=True)
class ItemResults:
    """Rows to write: ``scenario_id`` is the unit that is drawn again in intervals, ``score`` is null where unknown."""

    benchmark: str
    columns: Sequence[tuple[str, pa.DataType]]
    rows: Sequence[Mapping[str, Any]]
    origin: Mapping[str, Any] = field(default_factory=dict)  # what else the rows come from: the policy asked ...

    def write(self, output: Path, inputs: Sequence[Path], config: StageConfig, *, overwrite: bool) -> None:
        """Write ``output``; it appears only when complete."""
        refuse_existing(output, overwrite=overwrite)
        origin = {
            "version": RESULTS_VERSION,
            "benchmark": self.benchmark,
            "options": config.semantic_values(),
            "inputs": input_digests(inputs),
            "versions": package_versions("dialrl"),
            **self.origin,
        }
        metadata = {METADATA_KEY: json.dumps(origin, sort_keys=True, ensure_ascii=False).encode()}
        schema = pa.schema([*COMMON, *self.columns], metadata=metadata)
        with atomic_path(output) as temporary:
            pq.write_table(pa.Table.from_pylist(list(self.rows), schema=schema), temporary, compression="zstd")


def input_digests(inputs: Sequence[Path]) -> list[dict[str, str]]:
    """Name and digest of each file, as the metadata holds them."""
    return [{"name": path.name, "digest": file_digest(path)} for path in inputs]


def read_origin(path: Path) -> dict[str, Any]:
    """What the rows of a results file were made from. Raises InputError for any other file."""
    metadata = (_schema(path).metadata or {}).get(METADATA_KEY)
    if metadata is None:
        raise InputError(f"'{path}' holds no results of a benchmark; write them with dialrl evaluate KIND -o FILE.")
    origin: dict[str, Any] = json.loads(metadata)
    return origin


def is_item_results(path: Path) -> bool:
    """True for a Parquet file that ``write`` made."""
    return METADATA_KEY in (_schema(path).metadata or {})


def read_item_results(path: Path) -> tuple[str, pa.Table]:
    """Name of the benchmark and the rows. Raises InputError for any other file."""
    return str(read_origin(path)["benchmark"]), pq.read_table(path)


def _schema(path: Path) -> pa.Schema:
    if not path.exists():
        raise MissingInputError(f"'{path}' does not exist; expected results written by dialrl evaluate KIND -o FILE.")
    try:
        return pq.read_schema(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(f"'{path}' is no Parquet file ({str(error).splitlines()[0]}).") from None
