"""A reward model trained beside the policy: every iteration scores its dialogues and learns from their outcomes.

PRIME (arXiv 2502.01456, algorithm 1) and ITPO (2603.23550). The model begins as the policy the run starts from, which
stays its reference. It is saved, replayed and adopted as the policy is, so that a resumed run is the same run. Not
here: the loss (``dialrl.update.losses.outcome``), rewards (``dialrl.judge.implicit_reward``), when iterations happen
(``loop``).
"""

from pathlib import Path
from typing import Any

from dialrl.judge.files import IMPLICIT_REWARD, judge_files
from dialrl.model.find import find_policy
from dialrl.model.loading import model_directory
from dialrl.progress import Progress
from dialrl.train.config import PipelineConfig, RewardModelSection
from dialrl.train.run_directory import IterationFolder, RunDirectory
from dialrl.update.statistics import FileMetrics
from dialrl.update.trainers import PolicyTrainer, open_trainer


class RewardModel:
    """The model of one run, from iteration ``first`` on. ``figures``: of its update, by iteration."""

    def __init__(
        self, pipeline: PipelineConfig, section: RewardModelSection, directory: RunDirectory, first: int
    ) -> None:
        self._pipeline, self._section, self._directory = pipeline, section, directory
        self.figures: dict[int, dict[str, Any]] = {}
        # Of the start without a trainer state: what the policy's optimiser remembers is not this model's.
        self._start = model_directory(find_policy(pipeline.policy))
        config = section.update.updated(reference=self._start)
        source = self._before(directory.iteration(first))
        self._trainer: PolicyTrainer = open_trainer(source, config, pipeline.train.iterations)

    def close(self) -> None:
        """End the trainer."""
        self._trainer.close()

    def rewarded(self, folder: IterationFolder, judged: Path, progress: Progress) -> Path:
        """The judged file with the turns' rewards, and the model one update further; to be called once an iteration."""
        if self._section.order == "update-then-score":
            self._update(folder, judged, progress)
            self._score(folder, judged, folder.reward_model, progress)
        else:
            self._score(folder, judged, self._before(folder), progress)
            self._update(folder, judged, progress)
        return folder.implicit

    def _before(self, folder: IterationFolder) -> Path:
        """The model as it is when an iteration begins."""
        return self._start if folder.number == 0 else self._directory.iteration(folder.number - 1).reward_model

    def _score(self, folder: IterationFolder, judged: Path, model: Path, progress: Progress) -> None:
        config = self._pipeline.judge.updated(
            judge=IMPLICIT_REWARD,
            reward_model=str(model),
            reference=self._pipeline.policy,
            implicit_options=self._section.scores,
        )
        judge_files(judged, folder.implicit, config, resume=True, slim=True, progress=progress)

    def _update(self, folder: IterationFolder, judged: Path, progress: Progress) -> None:
        metrics = self._trainer.step_file(judged, progress)
        self.figures[folder.number] = figures_of(metrics)
        loop = self._pipeline.train
        due = (folder.number + 1) % loop.save_every == 0 or folder.number + 1 == loop.iterations
        if folder.has_reward_model and (folder.has_reward_model_state or not due):
            self._trainer.adopt(folder.reward_model)
        else:
            self._trainer.save(folder.reward_model, overwrite=True, with_trainer_state=due)


def figures_of(metrics: FileMetrics) -> dict[str, Any]:
    """What the metrics of an iteration say of an update: figures, counts, warnings."""
    sentence = () if metrics.no_signal is None else (metrics.no_signal,)
    return {**metrics.figures(), "counts": dict(metrics.counts), "warnings": [*sentence, *metrics.warnings]}
