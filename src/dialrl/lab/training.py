"""One training run of the confirmation tier in a process of its own, and how far such runs are, seen from outside.

A run tells nobody how far it is; its files do. Not here: which runs (``confirm``), processes (``pool``), training
(``dialrl.train``).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dialrl.progress import Progress
from dialrl.train.config import PipelineConfig
from dialrl.train.loop import train
from dialrl.train.run_directory import RunDirectory, remove_directory


@dataclass(frozen=True)
class TrainingJob:
    """A pipeline, the run directory it is to be trained in, and how many threads it may use."""

    pipeline: PipelineConfig
    place: Path
    threads: int = 1


def train_job(job: TrainingJob) -> None:
    """Train what is missing of one run. A tiny model's figures do not depend on the threads (``model.threads``)."""
    import torch

    torch.set_num_threads(job.threads)
    train(job.pipeline, job.place, resume=True)


def remove_run(place: Path) -> None:
    """Remove a run directory, if it is one. Raises UsageError while it is in use."""
    directory = RunDirectory(place)
    if not (place / "pipeline.yaml").is_file():
        return
    with directory.in_use():
        remove_directory(place)


class TrainingWatch:
    """Tells a Progress how far runs are: the iterations in their metrics, the latest share in their evaluations.

    ``places`` are the runs to be trained; what an earlier call left there is no work of this one.
    """

    def __init__(self, places: Sequence[Path], iterations: int, progress: Progress) -> None:
        self._done = {place: len(_lines(place / "metrics.jsonl")) for place in places}
        self._shares: dict[str, float] = {}
        self._progress = progress
        progress.start("lab confirm", sum(iterations - done for done in self._done.values()), "iterations")

    def look(self) -> None:
        """Report what was done since the last look."""
        fresh = {place: len(_lines(place / "metrics.jsonl")) - done for place, done in self._done.items()}
        for place, number in fresh.items():
            if number > 0:
                self._done[place] += number
                self._shares |= _latest_share(place)
                self._progress.advance(number, **self._shares)

    def finished(self, place: Path) -> None:
        """A run has ended: count its last iterations, and show its share no longer."""
        self.look()
        self._shares.pop(place.name, None)


def _latest_share(place: Path) -> Mapping[str, float]:
    """Name of the run -> share of the optimum at its latest evaluation."""
    evaluations = _lines(place / "evaluations.jsonl")
    share = json.loads(evaluations[-1]).get("share") if evaluations else None
    return {} if share is None else {place.name: share}


def _lines(file: Path) -> list[str]:
    """Its lines; the file is replaced as a whole with each iteration."""
    return file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
