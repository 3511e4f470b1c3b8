"""How an engine that runs elsewhere follows the trainer: what a run prints and records of deliveries.

An engine that is given weights by a ladder (vLLM) has its rungs tried before training, is told what the trainer's own
model gives after each update, and its deliveries stand in the metrics. For any other engine nothing happens here. Not
here: the ladder (``dialrl.engine.delivery``).
"""

from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from dialrl.engine.base import Engine
from dialrl.engine.delivery_trial import try_rungs
from dialrl.engine.vllm import VllmEngine
from dialrl.progress import Progress
from dialrl.train.config import PipelineConfig
from dialrl.trajectory.reader import TrajectoryFile
from dialrl.update.trainers import PolicyTrainer


@runtime_checkable
class Followed(Protocol):
    """A trainer in this process, whose model can be asked; spread over several it is not, and its files are read."""

    learner: Any


def engine_options(pipeline: PipelineConfig) -> dict[str, Any]:
    """The engine's options; vLLM is started with room for the adapters that ``update`` trains."""
    options = dict(pipeline.rollout.engine_options)
    if pipeline.rollout.engine == "vllm" and pipeline.update.lora_rank is not None:
        options.setdefault("lora_rank", pipeline.update.lora_rank)
    return options


def prepare(engine: Engine, place: str | Path, progress: Progress) -> None:
    """Try the rungs that could deliver weights, and say what was found."""
    if isinstance(engine, VllmEngine):
        for trial in try_rungs(engine, place):
            progress.message(trial.sentence())


def note(engine: Engine | None, policy: Path, trainer: PolicyTrainer) -> None:
    """Tell the engine what the trainer's model gives for ``policy``, before the trainer moves on."""
    if isinstance(engine, VllmEngine) and isinstance(trainer, Followed) and trainer.learner.group.count == 1:
        engine.expect(policy, trainer.learner.model)


def said(engine: Engine, progress: Progress) -> None:
    """Print what the last delivery took."""
    if isinstance(engine, VllmEngine) and engine.deliveries:
        progress.message(engine.deliveries[-1].sentence())


def delivery_figures(engine: Engine | None, rollout: Path) -> dict[str, Any]:
    """For an iteration's metrics: how the weights that spoke in its rollout came; empty for other engines."""
    if not isinstance(engine, VllmEngine):
        return {}
    record = TrajectoryFile.open(rollout).lineage.record("rollout")
    digest = None if record is None else record.details.get("policy_digest")
    found = [delivery for delivery in engine.deliveries if delivery.digest == digest]
    return {"delivery": {"digest": digest, **found[-1].figures()}} if found else {}
