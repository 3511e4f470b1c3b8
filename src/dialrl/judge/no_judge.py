"""``judge: none``: dialogues go on as they are, for credit that needs no judge (an outcome, a format penalty).

Adds no column; the file and its record keep the chain of stages whole. Not here: any grade.
"""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from dialrl.judge.config import JudgeConfig
from dialrl.progress import SILENT, Progress
from dialrl.summary import StageSummary
from dialrl.trajectory.lineage import StageRecord
from dialrl.trajectory.reader import TrajectoryFile
from dialrl.trajectory.transform import finished_before, transform


def judge_nothing(
    inputs: Path | Sequence[Path],
    output: Path,
    config: JudgeConfig,
    *,
    overwrite: bool = False,
    resume: bool = False,
    slim: bool = False,
    progress: Progress = SILENT,
) -> StageSummary:
    """Pass ``inputs`` on to ``output``."""
    source = TrajectoryFile.open(inputs)
    counts = {"turns": source.num_rows}
    figures = {"judge": config.judge}
    if resume and finished_before(output, stage="judge", config=config, source=source, overwrite=overwrite):
        return StageSummary("judge", output, counts, {**figures, "already_complete": True})
    transform(
        source,
        output,
        stage="judge",
        adds=(),
        reads=(),
        compute=_nothing,
        record=lambda: StageRecord(
            "judge", options=config.semantic_values(), inputs=source.input_files, seed=config.seed, counts=counts
        ),
        slim=slim,
        overwrite=overwrite or resume,
        batch_rows=config.batch_rows,
        progress=progress,
    )
    return StageSummary("judge", output, counts, figures)


def _nothing(table: pa.Table) -> dict[str, pa.ChunkedArray]:
    return {}
