"""The folder of a run: one numbered folder an iteration, ``base`` for the start, ``best`` for the best policy.

    runs/demo/pipeline.yaml                       the resolved configuration
    runs/demo/0003/{rollout,judge,returns,advantage}.parquet, policy/, metrics.json, evaluation.json
    runs/demo/0003/{kl,implicit,safety}.parquet, reward_model/   where the pipeline asks for them
    runs/demo/metrics.jsonl, evaluations.jsonl    the same, one line an iteration
    runs/demo/best.json, best/                    which policy has the best held-out score; that policy

The Makefile chain uses the same layout. Not here: the loop.
"""

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from dialrl.config import differing_keys, read_yaml, validated
from dialrl.errors import OutputExistsError, UsageError
from dialrl.json_file import read_object
from dialrl.train.config import PipelineConfig
from dialrl.trajectory.atomic import exclusive, temporary_sibling, write_text, writing


@dataclass(frozen=True)
class IterationFolder:
    """The files of one iteration."""

    path: Path
    number: int

    @property
    def rollout(self) -> Path:
        return self.path / "rollout.parquet"

    @property
    def judge(self) -> Path:
        return self.path / "judge.parquet"

    @property
    def returns(self) -> Path:
        return self.path / "returns.parquet"

    @property
    def advantage(self) -> Path:
        return self.path / "advantage.parquet"

    @property
    def kl(self) -> Path:
        """The judge file with the column kl, where a reference stands beside another judge."""
        return self.path / "kl.parquet"

    @property
    def implicit(self) -> Path:
        """The judged file with rewards by the reward model, where one is trained beside the policy."""
        return self.path / "implicit.parquet"

    @property
    def reward_model(self) -> Path:
        """That model, after this iteration's update."""
        return self.path / "reward_model"

    @property
    def safety(self) -> Path:
        """Checks of safety: beside the chain of files that is trained on, so that they never become a reward."""
        return self.path / "safety.parquet"

    @property
    def safety_record(self) -> Path:
        return self.path / "safety.json"

    @property
    def policy(self) -> Path:
        return self.path / "policy"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.json"

    @property
    def evaluation(self) -> Path:
        return self.path / "evaluation.json"

    @property
    def has_policy(self) -> bool:
        return (self.policy / "manifest.json").is_file()

    @property
    def has_reward_model(self) -> bool:
        return (self.reward_model / "manifest.json").is_file()

    @property
    def has_trainer_state(self) -> bool:
        """Whether training the policy can continue from here."""
        return self.has_policy and bool(read_json(self.policy / "manifest.json").get("trainer_state"))

    @property
    def has_reward_model_state(self) -> bool:
        """Whether training the reward model can continue from here."""
        return self.has_reward_model and bool(read_json(self.reward_model / "manifest.json").get("trainer_state"))


class RunDirectory:
    """Opens, names and lists the folders of a run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def best(self) -> Path:
        return self.path / "best"

    @property
    def best_record(self) -> Path:
        """Which policy is the best so far, with its score; iteration -1 is the one the run started from."""
        return self.path / "best.json"

    @property
    def base(self) -> IterationFolder:
        """Where the evaluation of the starting policy lies."""
        return IterationFolder(self.path / "base", -1)

    def iteration(self, number: int) -> IterationFolder:
        return IterationFolder(self.path / f"{number:04d}", number)

    def iterations(self) -> Iterator[IterationFolder]:
        """The iteration folders that exist, in order."""
        folders = [p for p in self.path.glob("[0-9][0-9][0-9][0-9]*") if p.is_dir() and p.name.isdigit()]
        for path in sorted(folders, key=lambda folder: int(folder.name)):
            yield IterationFolder(path, int(path.name))

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Keeps other processes out of this run; the lock lies beside the directory, which may be replaced.

        Raises UsageError when another process has it, WriteError where nothing can be written.
        """
        lock = self.path.with_name(f".{self.path.name}.lock")
        with ExitStack() as held:
            with writing(self.path):
                held.enter_context(exclusive(lock, f"The run directory '{self.path}'"))
            yield

    def check(self, pipeline: PipelineConfig, *, overwrite: bool, resume: bool) -> None:
        """Refuse a used folder, or one of another configuration; nothing is changed yet."""
        stored = self.path / "pipeline.yaml"
        if self.path.exists() and not self.path.is_dir():
            raise OutputExistsError(f"'{self.path}' is a file; a run is a directory. Name another: -o runs/NAME")
        if stored.exists() and resume:
            self._compare(read_pipeline_file(stored), pipeline)
        elif self._is_used(stored):
            self._check_clearing(stored, overwrite=overwrite)

    def prepare(self, pipeline: PipelineConfig, *, overwrite: bool, resume: bool) -> None:
        """Make the folder and store the configuration; refuse a used one, or one of another configuration."""
        self.check(pipeline, overwrite=overwrite, resume=resume)
        stored = self.path / "pipeline.yaml"
        if stored.exists() and resume:
            self._remove_halves()
        elif self._is_used(stored):
            shutil.rmtree(self.path)
        text = yaml.safe_dump(pipeline.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
        write_text(stored, text)

    def _is_used(self, stored: Path) -> bool:
        """Whether there is anything but what a run leaves that was killed before it began."""
        return self.path.is_dir() and any(path != temporary_sibling(stored) for path in self.path.iterdir())

    def _remove_halves(self) -> None:
        """Remove what a killed run was preparing or removing; the finished blocks of a rollout stay, to go on from."""
        for path in [*self.path.glob(".*.tmp"), *self.path.glob("*/.*.tmp"), *self.path.glob("*/*/.*.tmp")]:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()

    def _compare(self, before: PipelineConfig, now: PipelineConfig) -> None:
        differences = differing_keys(before.identity(), now.identity())
        if differences:
            raise UsageError(
                f"Cannot resume '{self.path}': its configuration differs: {'; '.join(differences)}."
                " Give the configuration it was started with, or another run directory."
            )

    @contextmanager
    def unless_refused(self) -> Iterator[None]:
        """Leave nothing of a start that fails before it made anything, so that the next one finds no used folder."""
        missing = [place for place in (self.path, *self.path.parents) if not place.exists()]
        try:
            yield
        except BaseException:
            stored = self.path / "pipeline.yaml"
            if stored.exists() and [path for path in self.path.rglob("*") if path.is_file()] == [stored]:
                shutil.rmtree(self.path)
            with suppress(OSError):  # not empty: somebody else's
                for place in missing:
                    if place.exists():
                        place.rmdir()
            raise

    def _check_clearing(self, stored: Path, *, overwrite: bool) -> None:
        if not overwrite:
            raise OutputExistsError(
                f"'{self.path}' is not empty. Continue the run with --resume, replace it with --overwrite, or name"
                " another directory."
            )
        if not stored.exists():
            raise OutputExistsError(f"'{self.path}' is no run directory (no pipeline.yaml), so it is not replaced.")

    def collect(self) -> None:
        """Write ``metrics.jsonl``, ``evaluations.jsonl``, ``best.json`` anew from the iterations' own files."""
        folders = list(self.iterations())
        self._write_lines("metrics.jsonl", [f.metrics for f in folders])
        self._write_lines("evaluations.jsonl", [f.evaluation for f in (self.base, *folders)])
        evaluated = [folder for folder in (self.base, *folders) if folder.evaluation.is_file()]
        if evaluated:
            best = max(evaluated, key=lambda folder: (read_json(folder.evaluation)["score"], -folder.number))
            score = read_json(best.evaluation)["score"]
            write_json(self.best_record, {"iteration": best.number, "score": score})

    def _write_lines(self, name: str, files: list[Path]) -> None:
        lines = [json.dumps(read_json(file)) + "\n" for file in files if file.is_file()]
        write_text(self.path / name, "".join(lines))


def read_pipeline_file(file: Path) -> PipelineConfig:
    """A stored, already resolved pipeline."""
    return validated(PipelineConfig, read_yaml(file), where=f"'{file}'")


def read_json(file: Path) -> dict[str, Any]:
    return read_object(file, remedy="Remove the folder of that iteration and resume.")


def write_json(file: Path, content: Mapping[str, Any]) -> None:
    write_text(file, json.dumps(content, indent=2, sort_keys=True, allow_nan=False) + "\n")


def remove_directory(path: Path) -> None:
    """Remove a directory so that no half of it is ever seen under its name."""
    if path.exists():
        doomed = path.with_name(f".{path.name}.removed.tmp")
        shutil.rmtree(doomed, ignore_errors=True)
        path.rename(doomed)
        shutil.rmtree(doomed)
