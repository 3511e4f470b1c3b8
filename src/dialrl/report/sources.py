"""What ``dialrl report`` was given, sorted out: run directories, studies, and the trajectory files that are shown.

Of a run these are the evaluation of its starting policy, the latest evaluation, and the latest training file. Not here:
what is computed from them (``run_figures``, ``file_figures``).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from dialrl.config import read_yaml
from dialrl.errors import InputError, MissingInputError, UsageError
from dialrl.json_file import read_object
from dialrl.report.study import Study, study_at
from dialrl.trajectory.reader import TrajectoryFile

TRAJECTORIES = ("advantage.parquet", "returns.parquet", "judge.parquet", "rollout.parquet")


@dataclass(frozen=True)
class DialogueSet:
    """One trajectory: ``role`` is before, after, training or file."""

    name: str
    source: TrajectoryFile
    role: str = "file"
    run: "Run | None" = None


@dataclass(frozen=True)
class Run:
    """A directory written by ``dialrl train``: metrics and evaluations, one record an iteration."""

    name: str
    path: Path

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        return _records(sorted(self._folders, key=int), self.path, "metrics.json")

    @cached_property
    def evaluations(self) -> list[dict[str, Any]]:
        """The starting policy's first; ``iteration`` -1 is that one."""
        return _records(["base", *sorted(self._folders, key=int)], self.path, "evaluation.json")

    @cached_property
    def pipeline(self) -> dict[str, Any]:
        return read_yaml(self.path / "pipeline.yaml")

    def training_files(self) -> list[tuple[int, Path]]:
        """Iteration and the furthest trajectory file in it, in order."""
        found = ((int(name), _furthest(self.path / name)) for name in sorted(self._folders, key=int))
        return [(number, file) for number, file in found if file is not None]

    @property
    def _folders(self) -> list[str]:
        return [path.name for path in self.path.iterdir() if path.is_dir() and path.name.isdigit()]


@dataclass
class Given:
    """All inputs of a report."""

    runs: list[Run] = field(default_factory=list)
    sets: list[DialogueSet] = field(default_factory=list)
    studies: list[Study] = field(default_factory=list)


def sort_out(inputs: Sequence[Path]) -> Given:
    """Open what the paths name. Raises UsageError for none, InputError for a run without files."""
    if not inputs:
        raise UsageError("A report needs something to show. Give a run directory, or trajectory files.")
    names = _names(inputs)
    given = Given()
    for path, name in zip(inputs, names, strict=True):
        if not path.exists():
            raise MissingInputError(f"'{path}' does not exist. Give a run directory or a trajectory file.")
        if path.suffix in (".yaml", ".yml") and path.is_file():
            raise UsageError(
                f"'{path}' is a pipeline, which has nothing to show. Give the directory of a run of it"
                " (dialrl train ... -o DIRECTORY), or trajectory files."
            )
        if (path / "pipeline.yaml").is_file():
            run = Run(name, path)
            given.runs.append(run)
            given.sets += _sets_of(run, several=len(inputs) > 1)
        elif (study := study_at(path, name)) is not None:
            given.studies.append(study)
        else:
            given.sets.append(DialogueSet(name, TrajectoryFile.open(path)))
    return given


def _sets_of(run: Run, *, several: bool) -> list[DialogueSet]:
    start = f"{run.name}: " if several else ""
    evaluated = [record["iteration"] for record in run.evaluations]
    places = [("before", "before training", run.path / "base" / "evaluation")] if -1 in evaluated else []
    later = [number for number in evaluated if number >= 0]
    if later:
        folder = run.path / f"{later[-1]:04d}" / "evaluation"
        places.append(("after", f"after {later[-1] + 1} iterations", folder))
    sets = [(role, label, _furthest(folder)) for role, label, folder in places]
    training = run.training_files()
    if training:
        sets.append(("training", f"training, iteration {training[-1][0] + 1}", training[-1][1]))
    found = [DialogueSet(start + label, TrajectoryFile.open(file), role, run) for role, label, file in sets if file]
    if not found:
        raise InputError(f"The run '{run.path}' has no trajectory file yet. Wait for its first iteration.")
    return found


def _furthest(folder: Path) -> Path | None:
    return next((folder / name for name in TRAJECTORIES if (folder / name).is_file()), None)


def _records(folders: Sequence[str], path: Path, name: str) -> list[dict[str, Any]]:
    files = [path / folder / name for folder in folders]
    return [read_object(file) for file in files if file.is_file()]


def _names(paths: Sequence[Path]) -> list[str]:
    """The shortest ends of the paths that tell them apart."""
    parts = [path.resolve().parts for path in paths]
    for length in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-length:]).removesuffix(".parquet") for part in parts]
        if len(set(names)) == len(names):
            return names
    raise UsageError("The same input was given twice; give each once.")
