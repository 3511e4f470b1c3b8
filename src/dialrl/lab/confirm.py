"""``dialrl lab confirm``: the confirmation tier. What the fast tier found, asked of the tiny language model.

Every run is one of ``dialrl train`` on the demo pipeline; only the preset and the seed differ, so rollouts, updates and
learning rate are equal. Runs are resumed where they were killed; a finished one is a small file of its own. Not here:
training (``dialrl.train``), what the figures say (``evaluate.study_figures``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dialrl.config import merged
from dialrl.environment.demo.planner import DemoReference
from dialrl.errors import InputError
from dialrl.lab.config import ConfirmConfig
from dialrl.lab.fast import FastPoint
from dialrl.lab.markdown import write_markdown
from dialrl.lab.runs import RunFiles, RunKey, RunResult, prepare_runs
from dialrl.lab.study import TABLE
from dialrl.lab.summary import study_summary
from dialrl.lab.table import write_table
from dialrl.progress import SILENT, Progress
from dialrl.resources import resource
from dialrl.summary import StageSummary
from dialrl.train.config import PipelineConfig, read_pipeline
from dialrl.train.loop import train
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

    The table is written after every run, so it can be looked at on the way. Raises what ``train`` raises, and
    OutputExistsError for a folder that holds runs unless ``resume`` or ``overwrite`` is given.
    """
    config = config or ConfirmConfig()
    plans = [Plan.of(config, preset, seed) for seed in range(config.seeds) for preset in config.presets]
    files, runs, played = RunFiles(folder / "runs"), [], 0
    progress.start("lab confirm", len(plans) * config.iterations, "iterations")
    with exclusive(folder / ".lock", f"The study '{folder}'"):
        prepare_runs(folder / "runs", overwrite=overwrite, resume=resume)
        for plan in plans:
            run = files.read(plan.key)
            if run is None:
                run = _trained(plan, folder / "train" / plan.name, progress, overwrite=overwrite)
                files.write(run)
                played += 1
            else:
                progress.advance(config.iterations)
            runs.append(run)
            write_table(folder / TABLE, [("final", each) for each in _by_preset(runs, config.presets)])
            write_markdown(folder / TABLE, config.compare_with)
    counts = {"runs": len(runs), "trained_now": played}
    return study_summary(folder / TABLE, config.compare_with, counts, stage="lab confirm")


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
        key = RunKey("confirm", SETTING, preset, pipeline.update.learning_rate, seed, options)
        return cls(f"{preset}-seed{seed}", pipeline, key)


def _by_preset(runs: Sequence[RunResult], presets: Sequence[str]) -> list[RunResult]:
    return [run for preset in presets for run in runs if run.key.preset == preset]


def _trained(plan: Plan, place: Path, progress: Progress, *, overwrite: bool) -> RunResult:
    def watch(record: Mapping[str, Any]) -> None:
        progress.advance(**({"share": record["share"]} if "share" in record else {}))

    train(plan.pipeline, place, resume=not overwrite, overwrite=overwrite, watch=watch)
    return read_run(plan.key, place)


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
