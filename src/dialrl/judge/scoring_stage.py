"""The stage around a judge that scores sampled tokens with frozen models: blocks, resuming, the output and its record.

What is scored, and which columns come of it, is the business of a ``ScoringWork`` (``reference_kl``,
``implicit_reward``). Grades and columns of other judges stay. Not here: models (``reference_scorer``).
"""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from dialrl.errors import UsageError
from dialrl.judge.blocks import Blocks, Row
from dialrl.judge.config import JudgeConfig
from dialrl.progress import Progress
from dialrl.summary import StageSummary
from dialrl.trajectory.lineage import StageRecord, write_run_file
from dialrl.trajectory.parts import discard_parts
from dialrl.trajectory.reader import TrajectoryFile
from dialrl.trajectory.transform import finished_before


class ScoringWork(Protocol):
    """What is scored. ``reads`` are the columns it looks at where they are, ``writes`` those it makes."""

    reads: tuple[str, ...]
    writes: tuple[str, ...]

    @property
    def made_from(self) -> dict[str, str]:
        """Digests of the models, by names that end in ``_digest``: with others it is other work."""
        ...

    def prepare(self) -> None:
        """Look over the whole input, before the first block; not called where the output is complete already."""
        ...

    def rows_of(self, dialogues: Sequence[list[Row]]) -> list[Row]:
        """Keys and written columns of every row of ``dialogues``, in order."""
        ...

    def count(self, table: pa.Table) -> None:
        """See the written columns of one block, for ``counts`` and ``figures``."""
        ...

    def counts(self) -> Mapping[str, int]:
        """Of the whole file, once all blocks were counted."""
        ...

    def details(self) -> dict[str, Any]:
        """For the lineage."""
        ...

    def figures(self) -> dict[str, Any]:
        """For the summary."""
        ...


def score_file(
    work: ScoringWork,
    source: TrajectoryFile,
    output: Path,
    config: JudgeConfig,
    *,
    overwrite: bool,
    resume: bool,
    slim: bool,
    progress: Progress,
) -> StageSummary:
    """Write the columns of ``work`` for ``source`` into ``output``.

    Raises OutputExistsError for an output that is there, UsageError for one (or an unfinished one) that was made with
    other models or settings.
    """
    began = time.monotonic()
    if resume and _is_finished(work, source, output, config, overwrite=overwrite):
        discard_parts(output)
        record = TrajectoryFile.open(output).lineage.record("judge")
        counts = {} if record is None else dict(record.counts)
        return StageSummary("judge", output, counts, {"already_complete": True})
    work.prepare()
    blocks = Blocks(
        source, output, config, reads=work.reads, writes=work.writes, made_from=work.made_from,
        overwrite=overwrite, resume=resume,
    )  # fmt: skip
    blocks.compute(work.rows_of, progress)
    blocks.publish(work.count, lambda: _record(work, source, config), slim=slim)
    write_run_file(output, seconds=time.monotonic() - began)
    return StageSummary("judge", output, _sorted(work.counts()), {"judge": config.judge, **work.figures()})


def _is_finished(
    work: ScoringWork, source: TrajectoryFile, output: Path, config: JudgeConfig, *, overwrite: bool
) -> bool:
    """Whether the output is there, from the same input, settings and models."""
    if not finished_before(output, stage="judge", config=config, source=source, overwrite=overwrite):
        return False
    record = TrajectoryFile.open(output).lineage.record("judge")
    details: Mapping[str, Any] = {} if record is None else record.details
    for name, digest in work.made_from.items():
        if details.get(name) == digest:
            continue
        if overwrite:
            return False
        model = name.removesuffix("_digest").replace("_", " ")
        raise UsageError(
            f"Cannot resume '{output}': it was made with the {model} {details.get(name)}, now given is {digest}."
            " Use --overwrite, or another output."
        )
    return True


def _record(work: ScoringWork, source: TrajectoryFile, config: JudgeConfig) -> StageRecord:
    return StageRecord(
        "judge",
        options=config.semantic_values(),
        inputs=source.input_files,
        seed=config.seed,
        counts=_sorted(work.counts()),
        details={**work.made_from, **work.details()},
    )


def _sorted(counts: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(counts.items()))
