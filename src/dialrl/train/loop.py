"""``dialrl train``: the loop over the stages. Engine and trainer stay up; every stage's result is its file.

Resume is the same loop: stages whose files are complete are passed by, the trainer starts from the latest saved state
and replays the stored advantage files after it, so a killed run ends like the unbroken one. Not here: any stage.
"""

import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dialrl.advantage.stage import compute_advantages
from dialrl.evaluate.dialogue import evaluate_policy, mean_scores
from dialrl.judge.files import REFERENCE_KL, judge_files
from dialrl.model.find import find_policy
from dialrl.model.loading import model_directory
from dialrl.progress import SILENT, Progress
from dialrl.returns.stage import compute_returns
from dialrl.rollout.policy import deliver, open_policy
from dialrl.rollout.stage import Policy, roll_out
from dialrl.summary import StageSummary
from dialrl.train.beside import beside
from dialrl.train.check import check_pipeline
from dialrl.train.config import PipelineConfig, update_config
from dialrl.train.damage import check_damage
from dialrl.train.following import delivery_figures, engine_options, note, prepare, said
from dialrl.train.machine import check_machine, fetch_policy
from dialrl.train.retention import keep_best, keep_start, prune
from dialrl.train.reward_model import RewardModel, figures_of
from dialrl.train.run_directory import IterationFolder, RunDirectory, read_json, write_json
from dialrl.train.safety import FLAG, FLAGGED, check_safety, safety_figures
from dialrl.train.tracking import MetricsSink, find_sink, numbers
from dialrl.trajectory.reader import TrajectoryFile
from dialrl.update.policy_directory import MANIFEST, read_manifest
from dialrl.update.trainers import PolicyTrainer, open_trainer

Watch = Callable[[dict[str, Any]], None]


def train(
    pipeline: PipelineConfig,
    run: Path,
    *,
    overwrite: bool = False,
    resume: bool = False,
    progress: Progress = SILENT,
    watch: Watch = lambda record: None,
) -> StageSummary:
    """Train ``pipeline`` in the run directory ``run``; ``watch`` gets the metrics of every finished iteration.

    Raises UsageError for a used directory or, on ``resume``, another configuration, and whatever a stage raises.
    """
    pipeline = pipeline.on_its_devices()
    open_sink = find_sink(pipeline.train.track)
    check_pipeline(pipeline)
    check_machine(pipeline)
    directory = RunDirectory(run)
    directory.check(pipeline, overwrite=overwrite, resume=resume)
    fetch_policy(pipeline)
    with directory.unless_refused(), directory.in_use():
        directory.prepare(pipeline, overwrite=overwrite, resume=resume)
        check_damage(directory)
        sink = open_sink(run, pipeline.model_dump(mode="json"))
        training = Training(pipeline, directory, progress, watch, sink)
        try:
            return training.run()
        finally:
            training.close()
            sink.close()


@dataclass
class Training:
    """One call of ``train``."""

    pipeline: PipelineConfig
    directory: RunDirectory
    progress: Progress
    watch: Watch
    sink: MetricsSink
    _seconds: dict[int, dict[str, float]] = field(default_factory=lambda: defaultdict(dict), init=False)
    _policy: Policy | None = field(default=None, init=False)
    _policy_place: str | Path | None = field(default=None, init=False)
    _reward_model: RewardModel | None = field(default=None, init=False)

    def run(self) -> StageSummary:
        self._evaluate(self.directory.base, self.start)
        first, source = self._restart()
        with ExitStack() as opened:
            trainer = opened.enter_context(
                open_trainer(source, update_config(self.pipeline), self.pipeline.train.iterations)
            )
            self._open_reward_model(first, opened)
            self._record_start()
            for number in range(self.pipeline.train.iterations):
                if number >= first:
                    self._iterate(trainer, self.directory.iteration(number))
                seen = self._seen(self.directory.iteration(number))
                self.sink.record(number + 1, numbers(seen))  # of a resumed run again: the same figures, the same step
                self.watch(seen)
        self._tidy(self.pipeline.train.iterations - 1)
        keep_start(self.directory, self.start)
        return self._summary()

    def close(self) -> None:
        """End the engine, and with it a server that it started."""
        if self._policy is not None:
            self._policy.engine.close()
        self._policy = None

    def _open_reward_model(self, first: int, opened: ExitStack) -> None:
        section = self.pipeline.reward_model
        if section is not None and first < self.pipeline.train.iterations:
            self._reward_model = RewardModel(self.pipeline, section, self.directory, first)
            opened.callback(self._reward_model.close)

    def _record_start(self) -> None:
        if self.directory.base.evaluation.is_file():
            self.sink.record(0, numbers({"evaluation": read_json(self.directory.base.evaluation)}))

    def _tidy(self, latest: int) -> None:
        """Drop what is not kept and gather the metrics; once more at the end, since a kill may fall in between."""
        prune(self.directory, self.pipeline.train, latest)
        self.directory.collect()

    @property
    def start(self) -> str | Path:
        """The policy the run starts from: of one that was trained before, the model alone, since the optimiser, the
        schedule and the count of updates begin with the run."""
        place = find_policy(self.pipeline.policy)
        manifest = read_manifest(place) if isinstance(place, Path) and (place / MANIFEST).is_file() else None
        return model_directory(place) if manifest is not None and manifest.step > 0 else place

    def _restart(self) -> tuple[int, str | Path]:
        """The first iteration to work on, and the policy whose trainer state it continues."""
        done = [
            folder for folder in self.directory.iterations() if folder.has_trainer_state and folder.metrics.is_file()
        ]
        done = [folder for folder in done if folder.number < self.pipeline.train.iterations]
        if self.pipeline.reward_model is not None:
            done = [folder for folder in done if folder.has_reward_model_state]
        return (done[-1].number + 1, done[-1].policy) if done else (0, self.start)

    def _iterate(self, trainer: PolicyTrainer, folder: IterationFolder) -> None:
        seconds = self._seconds[folder.number]
        if "advantage" not in seconds:  # else made beside the update before
            self._make_files(folder, seconds)
        update = self._update_beside_rollout if self.pipeline.train.lag else self._update
        figures = update(trainer, folder)
        _timed(seconds, "evaluate", lambda: self._evaluate_when_due(folder))
        if not folder.metrics.is_file():
            write_json(folder.metrics, self._metrics(folder, figures, seconds))
        self._tidy(folder.number)

    def _update_beside_rollout(self, trainer: PolicyTrainer, folder: IterationFolder) -> dict[str, Any]:
        """The update, in a thread of its own (shown by nothing) while the files of the next iteration are made."""
        with beside(lambda: self._update(trainer, folder, SILENT), trainer.cancel) as update:
            if folder.number + 1 < self.pipeline.train.iterations:
                following = self.directory.iteration(folder.number + 1)
                self._make_files(following, self._seconds[following.number])
        return update.result()

    def _make_files(self, folder: IterationFolder, seconds: dict[str, float]) -> None:
        """The iteration's four trajectory files; those that are complete are left as they are."""
        pipeline, progress = self.pipeline, self.progress
        kept: dict[str, Any] = {"resume": True, "slim": True, "progress": progress}
        _timed(seconds, "rollout", lambda: self._roll_out(folder))
        scorer = self._scorer(folder)
        _timed(
            seconds,
            "judge",
            lambda: judge_files(folder.rollout, folder.judge, pipeline.judge, policy=scorer, **kept),
        )
        judged = self._compared(folder, seconds, kept)
        model = self._reward_model
        if model is not None:
            compared = judged
            judged = _timed(seconds, "reward_model", lambda: model.rewarded(folder, compared, progress))
        _timed(seconds, "returns", lambda: compute_returns(judged, folder.returns, pipeline.returns, **kept))
        _timed(
            seconds,
            "advantage",
            lambda: compute_advantages(folder.returns, folder.advantage, pipeline.advantage, **kept),
        )
        section = pipeline.safety
        if section is not None:
            _timed(seconds, "safety", lambda: check_safety(folder, section, progress))

    def _compared(self, folder: IterationFolder, seconds: dict[str, float], kept: dict[str, Any]) -> Path:
        """The judged file; with the column kl, where a reference stands beside the judge."""
        judge = self.pipeline.judge
        if judge.reference is None or judge.judge == REFERENCE_KL:
            return folder.judge
        config = judge.updated(judge=REFERENCE_KL)
        _timed(seconds, "kl", lambda: judge_files(folder.judge, folder.kl, config, **kept))
        return folder.kl

    def _roll_out(self, folder: IterationFolder) -> StageSummary | None:
        place = self._before(folder)
        if folder.rollout.is_file() and isinstance(place, Path) and not place.exists():
            return None  # made before this run was resumed; the policy that spoke in it is not kept
        config = self.pipeline.rollout.updated(iteration=folder.number)
        return roll_out(self._policy_of(place), folder.rollout, config, resume=True, progress=self.progress)

    def _before(self, folder: IterationFolder) -> str | Path:
        """The policy that holds the dialogues of an iteration: with a lag not the latest, which is made meanwhile."""
        number = folder.number - 1 - self.pipeline.train.lag
        return self.start if number < 0 else self.directory.iteration(number).policy

    def _scorer(self, folder: IterationFolder) -> str | Path:
        """Whose belief the judge information-gain asks for: a frozen scorer is the policy the run starts from."""
        options = self.pipeline.judge.judge_options
        frozen = options.get("scorer") == "frozen" or options.get("targets") == "needs"
        return self.start if frozen else self._before(folder)

    def _policy_of(self, place: str | Path) -> Policy:
        """The engine with the weights of ``place``; opened once, then given new weights."""
        if self._policy is None:
            self._policy = open_policy(
                place,
                engine=self.pipeline.rollout.engine,
                device=self.pipeline.rollout.device,
                engine_options=engine_options(self.pipeline),
                endpoints=self.pipeline.rollout.endpoints,
                template_options=self.pipeline.rollout.template_options,
            )
            prepare(self._policy.engine, place, self.progress)
        elif self._policy_place != place:
            self._policy = deliver(self._policy, place)
            said(self._policy.engine, self.progress)
        self._policy_place = place
        return self._policy

    def _update(
        self, trainer: PolicyTrainer, folder: IterationFolder, progress: Progress | None = None
    ) -> dict[str, Any]:
        seconds = self._seconds[folder.number]
        return dict(_timed(seconds, "update", lambda: self._step(trainer, folder, progress or self.progress)))

    def _step(self, trainer: PolicyTrainer, folder: IterationFolder, progress: Progress) -> dict[str, Any]:
        metrics = trainer.step_file(folder.advantage, progress)
        last = folder.number + 1 == self.pipeline.train.iterations
        due = last or (folder.number + 1) % self.pipeline.train.save_every == 0
        if folder.has_policy and (folder.has_trainer_state or not due):
            trainer.adopt(folder.policy)
        else:
            trainer.save(folder.policy, overwrite=True, with_trainer_state=due)
        note(self._policy.engine if self._policy else None, folder.policy, trainer)
        return figures_of(metrics)

    def _evaluate_when_due(self, folder: IterationFolder) -> None:
        every = self.pipeline.train.evaluate_every
        last = folder.number + 1 == self.pipeline.train.iterations
        if every and (last or (folder.number + 1) % every == 0):
            self._evaluate(folder, folder.policy)
            keep_best(self.directory, folder)

    def _evaluate(self, folder: IterationFolder, policy: str | Path) -> None:
        if folder.evaluation.is_file() or not self.pipeline.train.evaluate_every:
            return
        place = folder.path / "evaluation"
        summary = evaluate_policy(
            self._policy_of(policy), place, self.pipeline.evaluate, resume=True, progress=self.progress
        )
        write_json(folder.evaluation, {"iteration": folder.number, **summary.to_json()})

    def _metrics(self, folder: IterationFolder, update: dict[str, Any], seconds: dict[str, float]) -> dict[str, Any]:
        """Counts and warnings are read from the files, so that a resumed run says what the unbroken one says."""
        records = TrajectoryFile.open(folder.advantage).lineage.records
        safety = safety_figures(self.directory, folder)
        flagged = [FLAG] if safety.get(FLAGGED) else []
        return {
            "iteration": folder.number,
            **mean_scores(folder.judge, until=self.pipeline.returns.until),
            **delivery_figures(self._policy.engine if self._policy else None, folder.rollout),
            "update": update,
            **({} if self._reward_model is None else {"reward_model": self._reward_model.figures[folder.number]}),
            "counts": {record.stage: dict(record.counts) for record in records},
            "warnings": [*flagged, *(warning for record in records for warning in record.warnings)],
            **({"safety": safety} if safety else {}),
            "seconds": {name: round(value, 3) for name, value in seconds.items()},
        }

    def _seen(self, folder: IterationFolder) -> dict[str, Any]:
        record = read_json(folder.metrics)
        record["evaluation"] = read_json(folder.evaluation) if folder.evaluation.is_file() else None
        return record

    def _summary(self) -> StageSummary:
        folders = [f for f in (self.directory.base, *self.directory.iterations()) if f.evaluation.is_file()]
        curve = [(f, read_json(f.evaluation)) for f in folders]
        iterations = self.pipeline.train.iterations
        figures: dict[str, Any] = {"run": str(self.directory.path), "files": self._files()}
        if curve:
            best = max(curve, key=lambda entry: (entry[1]["score"], -entry[0].number))
            measure = "share" if "share" in best[1] else "score"
            figures.update(
                measure=measure,
                base=curve[0][1][measure],
                final=curve[-1][1][measure],
                best=best[1][measure],
                best_iteration=best[0].number,
                final_interval=curve[-1][1].get(f"{measure}_interval") or curve[-1][1]["intervals"]["score"],
                reference=curve[-1][1].get("reference", {}),
            )
        safety = safety_figures(self.directory, self.directory.iteration(iterations - 1))
        figures.update({"safety": safety} if safety else {})
        warnings = (FLAG,) if safety.get(FLAGGED) else ()
        return StageSummary("train", self.directory.path, {"iterations": iterations}, figures, warnings)

    def _files(self) -> dict[str, str]:
        """Where the results lie, by name; ``best policy`` only where there is one beside the last."""
        directory, last = self.directory, self.directory.iteration(self.pipeline.train.iterations - 1)
        places = {
            "last policy": last.policy,
            "best policy": directory.best,
            "trajectories": last.advantage,
            "metrics": directory.path / "metrics.jsonl",
            "evaluations": directory.path / "evaluations.jsonl",
            "configuration": directory.path / "pipeline.yaml",
        }
        return {name: str(place) for name, place in places.items() if place.exists() and place.stat().st_size}


def _timed(seconds: dict[str, float], name: str, work: Callable[[], Any]) -> Any:
    began = time.monotonic()
    result = work()
    seconds[name] = time.monotonic() - began
    return result
