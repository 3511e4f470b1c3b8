"""``dialrl returns``: reads judged turns, adds rewards and returns. Files in, files out; arithmetic is elsewhere."""

import time
from collections.abc import Sequence
from pathlib import Path

from dialrl.progress import SILENT, Progress
from dialrl.returns.channels import chosen_channels
from dialrl.returns.config import ReturnsConfig
from dialrl.returns.work import STAGE, ReturnsWork
from dialrl.summary import StageSummary
from dialrl.trajectory.lineage import write_run_file
from dialrl.trajectory.reader import TrajectoryFile
from dialrl.trajectory.transform import finished_before, transform


def compute_returns(
    inputs: Path | str | Sequence[Path | str],
    output: Path,
    config: ReturnsConfig | None = None,
    *,
    overwrite: bool = False,
    resume: bool = False,
    slim: bool = False,
    progress: Progress = SILENT,
) -> StageSummary:
    """Add reward_<channel> and its status, reward, reward_filled and return to ``inputs`` and write ``output``.

    Raises InputError for an input that lacks what a channel reads, UsageError for an unknown channel, OutputExistsError
    when ``output`` exists and neither ``overwrite`` nor ``resume`` is given. With ``resume`` a complete output made
    from the same input with the same options is left as it is.
    """
    began = time.monotonic()
    config = config or ReturnsConfig()
    channels = chosen_channels(config)
    source = TrajectoryFile.open(inputs, needs=[name for channel in channels for name in channel.needs])
    if resume and finished_before(output, stage=STAGE, config=config, source=source, overwrite=overwrite):
        return _already_done(output)
    work = ReturnsWork(source.names, channels, config, lambda names: source.groups(names, config.batch_rows))
    transform(
        source,
        output,
        stage=STAGE,
        adds=work.adds,
        reads=work.reads,
        compute=work.columns,
        record=lambda: work.record(source.input_files),
        slim=slim,
        overwrite=overwrite,
        batch_rows=config.batch_rows,
        progress=progress,
    )
    write_run_file(output, seconds=time.monotonic() - began)
    return StageSummary(STAGE, output, work.tally.counts(), work.tally.figures(config), work.tally.warnings())


def _already_done(output: Path) -> StageSummary:
    record = TrajectoryFile.open(output).lineage.record(STAGE)
    counts, warnings = ({}, ()) if record is None else (dict(record.counts), tuple(record.warnings))
    done = f"'{output}' was complete already; nothing was computed."
    return StageSummary(STAGE, output, counts, warnings=(*warnings, done))
