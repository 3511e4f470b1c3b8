"""The common shape of a stage: read whole groups, add columns, write a new file with one more lineage record.

A *whole* output copies what it read; a *slim* one holds the keys and the new columns and names its parent. Columns of
this stage and later ones that stand in the input are replaced or left out: they would describe other numbers. Not here:
what a stage computes.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from dialrl.config import StageConfig, differing_keys
from dialrl.errors import UsageError
from dialrl.progress import SILENT, Progress
from dialrl.trajectory.lineage import Lineage, Parent, StageRecord, complete_run_file
from dialrl.trajectory.reader import BATCH_ROWS, Shard, TrajectoryFile
from dialrl.trajectory.schema import KEYS, column_for, ordered, outlives, schema_for
from dialrl.trajectory.writer import TrajectoryWriter, refuse_existing

Compute = Callable[[pa.Table], Mapping[str, pa.Array | pa.ChunkedArray]]


def transform(
    source: TrajectoryFile,
    output: Path,
    *,
    stage: str,
    adds: Sequence[str],
    reads: Sequence[str],
    compute: Compute,
    record: Callable[[], StageRecord],
    slim: bool = False,
    overwrite: bool = False,
    batch_rows: int = BATCH_ROWS,
    progress: Progress = SILENT,
) -> None:
    """Stream ``source`` to ``output`` with the columns ``adds`` that ``compute`` makes from the columns ``reads``.

    ``compute`` gets tables of whole groups (keys and ``reads``). ``record`` is called last, so it can hold counts.
    """
    refuse_existing(output, overwrite=overwrite)
    if slim:
        _check_slim(source, output)
    kept = list(KEYS) if slim else _kept(source.names, stage, adds)
    schema = schema_for([*kept, *adds])
    progress.start(stage, source.num_rows, "turns")
    with TrajectoryWriter(output, schema) as writer:
        for table in source.groups([*dict.fromkeys([*kept, *KEYS, *reads])], batch_rows):
            made = compute(table.select([*dict.fromkeys([*KEYS, *reads])]))
            columns = {name: (made[name] if name in made else table[name]) for name in schema.names}
            writer.write(pa.table(columns, schema=schema))
            progress.advance(table.num_rows)
        writer.finish(_lineage(source, output, stage, record(), slim=slim))


def _kept(names: Sequence[str], stage: str, adds: Sequence[str]) -> list[str]:
    """Columns of earlier stages; those of the judge stage that another kind of judge wrote stay too."""
    return ordered(name for name in names if outlives(column_for(name).stage, rerun=stage) and name not in adds)


def _lineage(source: TrajectoryFile, output: Path, stage: str, record: StageRecord, *, slim: bool) -> Lineage:
    if not slim:
        return Lineage((*source.lineage.outliving(stage), record))
    parent = source.shards[0].path.resolve()
    relative = os.path.relpath(parent, output.parent.resolve())
    return Lineage((record,), Parent(Path(relative).as_posix(), source.digest()))


def _check_slim(source: TrajectoryFile, output: Path) -> None:
    if len(source.shards) != 1:
        raise UsageError(f"A slim output completes one file; {source.where} are several. Leave out --slim.")
    place = output.resolve()
    shard: Shard | None = source.shards[0]
    while shard is not None:
        if place == shard.path.resolve():
            raise UsageError(
                f"A slim output completes its input and what that completes in turn, so it cannot replace '{output}'."
                " Name another output."
            )
        shard = shard.parent


def finished_before(
    output: Path, *, stage: str, config: StageConfig, source: TrajectoryFile, overwrite: bool = False
) -> bool:
    """For ``--resume``: True when ``output`` is complete and was made from the same input with the same options.

    It then has its run file too.

    Outputs appear only when complete, so one that is there needs no more work. One that was made otherwise: False with
    ``overwrite`` (it is to be made anew), else UsageError listing what differs.
    """
    if not output.exists():
        return False
    done = TrajectoryFile.open(output).lineage.record(stage)
    if done is None:
        if overwrite:
            return False
        raise UsageError(f"'{output}' was not written by '{stage}'. Choose another output, or use --overwrite.")
    differences = differing_keys(dict(done.options), config.semantic_values())
    if [file.digest for file in done.inputs] != [file.digest for file in source.input_files]:
        differences.append(f"input: {[f.name for f in done.inputs]} -> {source.where} (other content)")
    if differences and not overwrite:
        raise UsageError(
            f"Cannot resume '{output}': it was made with other settings: {'; '.join(differences)}."
            " Use --overwrite, or another output."
        )
    if differences:
        return False
    complete_run_file(output)
    return True
