"""``dialrl advantage``: reads rewards and returns, adds one advantage a turn. Files in, files out.

Pools that span the input cost one more pass over the few columns they need; memory is bounded by ``batch_rows`` and the
largest group, never by the file. Not here: the arithmetic (``estimate``, ``pools``).
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dialrl.advantage.anchors import refuse_absent_anchor
from dialrl.advantage.config import AdvantageConfig
from dialrl.advantage.resolve import Origin, resolved_terms
from dialrl.advantage.tally import samples_asked
from dialrl.advantage.work import STAGE, AdvantageWork
from dialrl.progress import SILENT, Progress
from dialrl.summary import StageSummary
from dialrl.trajectory.agreement import rollouts
from dialrl.trajectory.lineage import write_run_file
from dialrl.trajectory.reader import TrajectoryFile
from dialrl.trajectory.transform import finished_before, transform


def compute_advantages(
    inputs: Path | str | Sequence[Path | str],
    output: Path,
    config: AdvantageConfig | None = None,
    *,
    overwrite: bool = False,
    resume: bool = False,
    slim: bool = False,
    progress: Progress = SILENT,
) -> StageSummary:
    """Add advantage_<term> and advantage to ``inputs`` and write ``output``.

    Raises InputError for a file that has not been through ``returns`` or lacks a channel, UsageError for an unknown
    preset, an override that fits nothing, or a gamma that is not the preset's; OutputExistsError when ``output`` exists
    and neither ``overwrite`` nor ``resume`` is given.
    """
    began = time.monotonic()
    config = config or AdvantageConfig()
    source = TrajectoryFile.open(inputs, stage="returns", needs=("reward", "reward_filled", "return"))
    origin = Origin.of_file(source)
    terms, notes = resolved_terms(config, origin)
    refuse_absent_anchor(terms, source.names, where=source.where)
    if resume and finished_before(output, stage=STAGE, config=config, source=source, overwrite=overwrite):
        return _already_done(output)
    work = AdvantageWork(terms, origin, config, lambda names: source.groups(names, config.batch_rows))

    def warnings() -> tuple[str, ...]:
        return (*notes, *work.tally.warnings(samples_asked([record for _, record in rollouts(source)])))

    transform(
        source,
        output,
        stage=STAGE,
        adds=work.adds,
        reads=work.reads,
        compute=work.columns,
        record=lambda: replace(work.record(source.input_files), warnings=warnings()),
        slim=slim,
        overwrite=overwrite,
        batch_rows=config.batch_rows,
        progress=progress,
    )
    write_run_file(output, seconds=time.monotonic() - began)
    figures = {"estimator": config.estimator, "file_gamma": origin.gamma, **work.tally.figures()}
    return StageSummary(STAGE, output, work.tally.counts(), figures, warnings())


def _already_done(output: Path) -> StageSummary:
    record = TrajectoryFile.open(output).lineage.record(STAGE)
    counts, warnings = ({}, ()) if record is None else (dict(record.counts), tuple(record.warnings))
    done = f"'{output}' was complete already; nothing was computed."
    return StageSummary(STAGE, output, counts, warnings=(*warnings, done))
