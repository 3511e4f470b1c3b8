"""``dialrl lab confirm``: the confirmation tier. What the fast tier found, asked of the tiny language model.

Every run is one of ``dialrl train`` on the demo pipeline; only the preset and the seed differ, so rollouts, updates and
learning rate are equal. Several runs go side by side, each in a process of its own, and share the cores. They are
resumed where they were killed; a finished one is a small file of its own. Not here: training (``dialrl.train``), what
the figures say (``evaluate.study_figures``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic_core import to_jsonable_python

from dialrl.concurrency import usable_cores
from dialrl.config import StageConfig, merged
from dialrl.environment.demo.planner import DemoReference
from dialrl.errors import InputError
from dialrl.lab.config import ConfirmConfig
from dialrl.lab.fast import FastPoint
from dialrl.lab.markdown import write_markdown
from dialrl.lab.pool import Workers, workers
from dialrl.lab.runs import RunFiles, RunKey, RunResult, prepare_runs
from dialrl.lab.study import TABLE
from dialrl.lab.summary import study_summary
from dialrl.lab.table import write_table
from dialrl.lab.training import TrainingJob, TrainingWatch, remove_run, train_job
from dialrl.progress import SILENT, Progress
from dialrl.resources import resource
from dialrl.summary import StageSummary
from dialrl.train.config import PipelineConfig, read_pipeline
from dialrl.train.run_directory import RunDirectory, read_json
from dialrl.trajectory.atomic import exclusive

SETTING = "standard"


def run_confirm(
    folder: Path,
    config: ConfirmConfig | None = None,
    *,
    overwrite: bool = False,
    resume: bool = False,
    progress: Progress = SILENT,
) -> StageSummary:
    """Train what is missing of ``config`` in ``folder`` (train/PRESET-seedN), and write ``lab.parquet`` there.

    The table is written after every run, so it can be looked at on the way. When one fails or this process is
    interrupted or killed, the others end as well; ``resume`` goes on with each where it was. Raises what ``train``
    raises, and OutputExistsError for a folder that holds runs unless ``resume`` or ``overwrite`` is given.
    """
    config = config or ConfirmConfig()
    confirmation = Confirmation(folder, config, progress)
    with exclusive(folder / ".lock", f"The study '{folder}'"), workers(config.jobs, apart=True) as pool:
        prepare_runs(folder / "runs", overwrite=overwrite, resume=resume)
        if overwrite:
            confirmation.remove()
        return confirmation.run(pool)


class Confirmation:
    """One call of ``run_confirm``."""

    def __init__(self, folder: Path, config: ConfirmConfig, progress: Progress) -> None:
        self.folder, self.config, self.progress = folder, config, progress
        self.files = RunFiles(folder / "runs")
        self.plans = [Plan.of(config, preset, seed) for seed in range(config.seeds) for preset in config.presets]

    def remove(self) -> None:
        """Remove the training of every planned run."""
        for plan in self.plans:
            remove_run(self._place(plan))

    def run(self, pool: Workers) -> StageSummary:
        found = {plan.name: run for plan in self.plans if (run := self.files.read(plan.key)) is not None}
        missing = [plan for plan in self.plans if plan.name not in found]
        watch = TrainingWatch([self._place(plan) for plan in missing], self.config.iterations, self.progress)

        def finished(number: int, _: None) -> None:
            plan = missing[number]
            found[plan.name] = run = read_run(plan.key, self._place(plan))
            self.files.write(run)
            watch.finished(self._place(plan))
            self._write(found)

        if not missing:
            self._write(found)
        threads = max(1, usable_cores() // self.config.jobs)
        jobs = [TrainingJob(plan.pipeline, self._place(plan), threads) for plan in missing]
        pool.each(train_job, jobs, finished, named=lambda job: job.place.name, meanwhile=watch.look)
        counts = {"runs": len(found), "trained_now": len(missing)}
        return study_summary(self.folder / TABLE, self.config.compare_with, counts, stage="lab confirm")

    def _place(self, plan: "Plan") -> Path:
        return self.folder / "train" / plan.name

    def _write(self, found: Mapping[str, RunResult]) -> None:
        """The tables of what is finished, preset by preset, whatever the order in which it was."""
        runs = [found[plan.name] for plan in self.plans if plan.name in found]
        ordered = [run for preset in self.config.presets for run in runs if run.key.preset == preset]
        write_table(self.folder / TABLE, [("final", run) for run in ordered])
        write_markdown(self.folder / TABLE, self.config.compare_with)


@dataclass(frozen=True)
class Plan:
    """One training run to be."""

    name: str
    pipeline: PipelineConfig
    key: RunKey

    @classmethod
    def of(cls, config: ConfirmConfig, preset: str, seed: int) -> "Plan":
        """The pipeline with the preset as published; the seed goes to every part that draws."""
        file = resource("demo.yaml", kind="pipelines") if config.pipeline is None else Path(config.pipeline)
        own = {
            "train": {"iterations": config.iterations, "evaluate_every": config.evaluate_every},
            "advantage": {"preset": preset, "turn_weight": None},
            "rollout": {"seed": seed},
            "judge": {"seed": seed},
            "update": {"seed": seed},
        }
        pipeline = read_pipeline(file, merged(config.changes, own))
        options = {**pipeline.identity(), "iterations": config.iterations}
        rate = pipeline.update.learning_rate
        key = RunKey("confirm", SETTING, preset, rate, seed, options, default_options(pipeline))
        return cls(f"{preset}-seed{seed}", pipeline, key)


def default_options(pipeline: PipelineConfig) -> dict[str, Any]:
    """What ``pipeline.identity()`` says of an option that is not given, for all that have a default."""
    return {
        f"{section}.{name}": to_jsonable_python(field.get_default(call_default_factory=True))
        for section in type(pipeline).model_fields
        if isinstance(config := getattr(pipeline, section), StageConfig)
        for name, field in type(config).model_fields.items()
        if not field.is_required()
    }


def read_run(key: RunKey, place: Path) -> RunResult:
    """The learning curve of a finished run of ``dialrl train``. Raises InputError for one without exact values."""
    directory = RunDirectory(place)
    metrics = [read_json(folder.metrics) for folder in directory.iterations()]
    folders = [directory.base, *directory.iterations()]
    evaluations = [read_json(folder.evaluation) for folder in folders if folder.evaluation.is_file()]
    if not evaluations or not evaluations[0].get("reference"):
        raise InputError(f"The run '{place}' has no evaluation with exact values; expected a run in the demo world.")
    done = [-1, *(evaluation["iteration"] for evaluation in evaluations[:-1])]
    curve = tuple(
        _point(evaluation, metrics[: evaluation["iteration"] + 1], before + 1)
        for evaluation, before in zip(evaluations, done, strict=True)
    )
    exact = {name: values["score"] for name, values in evaluations[0]["reference"].items()}
    seconds = sum(sum(record["seconds"].values()) for record in metrics)
    return RunResult(key, curve, DemoReference(**exact), round(seconds, 3))


def _point(evaluation: Mapping[str, Any], metrics: Sequence[Mapping[str, Any]], before: int) -> FastPoint:
    """An evaluation, and training from iteration ``before`` up to it."""
    norms = [record["update"]["gradient_norm"] for record in metrics[before:]]
    counts = [record["counts"]["rollout"] for record in metrics]
    return FastPoint(
        iteration=evaluation["iteration"] + 1,
        value=evaluation["score"],
        share=evaluation["share"],
        revealed=None,
        succeeded=evaluation["success_rate"],
        turns=evaluation["mean_turns"],
        entropy=metrics[-1]["update"]["entropy"] if metrics else None,
        gradient_norm=sum(norms) / len(norms) if norms else None,
        trained_dialogues=sum(count["dialogues"] for count in counts),
        trained_turns=sum(count["turns"] for count in counts),
    )
