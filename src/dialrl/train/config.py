"""A pipeline: one section a stage, and ``train`` for the loop over them. The file behind ``dialrl train``."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import model_validator

from dialrl.advantage.config import AdvantageConfig
from dialrl.config import StageConfig, merged, operational, read_yaml, semantic, validated
from dialrl.errors import UsageError
from dialrl.evaluate.config import DialogueConfig
from dialrl.judge.config import JudgeConfig
from dialrl.judge.implicit_options import ImplicitOptions
from dialrl.returns.config import ReturnsConfig
from dialrl.rollout.config import RolloutConfig
from dialrl.train.tracking import Tracker
from dialrl.update.config import UpdateConfig

# What an evaluation takes over from the training rollouts unless its section says otherwise.
_FROM_ROLLOUT = (
    "environment", "environment_options", "max_turns", "max_reply_tokens", "context_limit_tokens", "history",
    "template_options", "engine", "engine_options", "device", "block_dialogues", "endpoints",
)  # fmt: skip
_FROM_JUDGE = ("judge", "judge_options", "stop")
# What the checks of safety take over from the judge.
_FOR_SAFETY = ("environment_options", "endpoints", "cache", "cache_folder", "concurrency", "call_timeout_seconds")


class Devices(StageConfig):
    """Devices of their own for the two halves of the loop."""

    rollout: str = operational(help="Device of the engine that rolls out and evaluates, such as cuda:0.")
    update: str = operational(help="Device of the update, or one for each of its processes: cuda:1,cuda:2.")


class TrainConfig(StageConfig):
    """The loop: how long, how often to evaluate and save, what to keep."""

    iterations: int = semantic(60, ge=1, help="Iterations: rollout, judge, returns, advantage, update.")
    evaluate_every: int = semantic(10, ge=0, help="Iterations between evaluations on held-out scenarios; 0: none.")
    lag: int = semantic(
        0, ge=0, le=1, help="1: the next rollout runs while an update does, by the policy before that update."
    )
    devices: Literal["shared"] | Devices = operational(
        "shared",
        help="shared: as rollout.device and update.device say; or one each: {rollout: cuda:0, update: cuda:1}.",
    )
    save_every: int = operational(
        5, ge=1, help="Iterations between saves of the trainer state (resume replays the rest)."
    )
    keep_last: int = operational(2, ge=1, help="Policies of the latest iterations that are kept.")
    keep_every: int = operational(0, ge=0, help="Also keep the policy of every Nth iteration; 0: none.")
    require_judge: str | None = operational(
        None, help="Results of dialrl evaluate judge -o: start only if they are about this judge, and it has passed."
    )
    track: Tracker | None = operational(
        None, help="Where metrics go too: tensorboard, wandb, trackio or mlflow (each an extra)."
    )


class SafetySection(JudgeConfig):
    """Who checks the safety of every iteration's crisis dialogues, apart from the reward."""

    judge: Literal["safety"] = semantic("safety", help="The kind of judge.")


class RewardModelUpdate(UpdateConfig):
    """How the reward model is trained: ``dialrl update --loss outcome``, with the defaults of PRIME and ITPO."""

    loss: Literal["outcome"] = semantic("outcome", help="The loss: the dialogue's outcome.")
    learning_rate: float = semantic(1e-6, gt=0, help="peak learning rate")
    max_gradient_norm: float = semantic(10.0, gt=0, help="gradients are scaled down to this norm")
    mini_batch_dialogues: int | None = semantic(64, ge=1, help="dialogues an optimiser step (null: all)")

    @property
    def names_its_reference(self) -> bool:
        return False


class RewardModelSection(StageConfig):
    """An implicit process reward model, trained beside the policy on outcomes; the channel ``implicit`` reads it."""

    order: Literal["score-then-update", "update-then-score"] = semantic(
        "score-then-update", help="Whether an iteration's dialogues are scored before the model learns from them."
    )
    scores: ImplicitOptions = semantic(ImplicitOptions(), help="From log-ratios to rewards, as dialrl judge.")
    update: RewardModelUpdate = semantic(RewardModelUpdate(), help="How it is trained, as dialrl update.")

    @model_validator(mode="before")
    @classmethod
    def _one_beta_and_range(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        scores, update = (values.get(name) or {} for name in ("scores", "update"))
        if not isinstance(scores, Mapping) or not isinstance(update, Mapping):
            return values
        options = ImplicitOptions.model_validate(scores)
        taken = {"outcome_beta": options.beta, "outcome_range": options.outcome_range}
        return {**values, "update": {**taken, **update}}

    @model_validator(mode="after")
    def _trains_what_it_scores(self) -> Self:
        for name, scored in (("outcome_beta", self.scores.beta), ("outcome_range", self.scores.outcome_range)):
            if getattr(self.update, name) != scored:
                raise ValueError(
                    f"update.{name} is {getattr(self.update, name)}, scores has {scored}: set it in scores alone, the"
                    " model is trained as it scores"
                )
        if self.update.reference is not None:
            raise ValueError("update.reference is the policy that the run starts from; leave it out")
        return self

    def semantic_values(self) -> dict[str, Any]:
        return {**super().semantic_values(), "update": self.update.semantic_values()}


class PipelineConfig(StageConfig):
    """A complete run."""

    policy: str = semantic("demo-policy", help="The policy to start from: a directory, or demo-policy.")
    train: TrainConfig = semantic(TrainConfig(), help="The loop.")
    rollout: RolloutConfig = semantic(RolloutConfig(), help="dialrl rollout.")
    judge: JudgeConfig = semantic(JudgeConfig(), help="dialrl judge.")
    returns: ReturnsConfig = semantic(ReturnsConfig(), help="dialrl returns.")
    advantage: AdvantageConfig = semantic(AdvantageConfig(), help="dialrl advantage.")
    update: UpdateConfig = semantic(UpdateConfig(), help="dialrl update.")
    reward_model: RewardModelSection | None = semantic(
        None, help="A reward model trained beside the policy on outcomes; none: no such model."
    )
    evaluate: DialogueConfig = semantic(DialogueConfig(), help="dialrl evaluate dialogue, on held-out scenarios.")
    safety: SafetySection | None = semantic(None, help="dialrl judge --kind safety, every iteration; none: no checks.")

    @model_validator(mode="before")
    @classmethod
    def _evaluate_as_trained(cls, values: Any) -> Any:
        if not isinstance(values, dict) or not isinstance(values.get("evaluate") or {}, Mapping):
            return values
        given = values.get("safety")
        safety = {**_taken(values, "judge", _FOR_SAFETY), **given} if isinstance(given, Mapping) else given
        return {**values, "evaluate": evaluation_values(values), "safety": safety}

    @model_validator(mode="after")
    def _trains_on_no_test_scenario(self) -> "PipelineConfig":
        if self.rollout.split == self.evaluate.split:
            raise ValueError(
                f"rollout.split and evaluate.split are both '{self.rollout.split}': what is trained on cannot be tested"
                " on. Train on 'train', evaluate on 'test'"
            )
        return self

    @model_validator(mode="after")
    def _takes_files_of_its_own_lag(self) -> "PipelineConfig":
        limit = self.update.max_lag
        if limit is not None and limit < self.train.lag:
            raise ValueError(f"update.max_lag {limit} would refuse every file of a run with train.lag {self.train.lag}")
        return self

    def on_its_devices(self) -> "PipelineConfig":
        """The pipeline with ``train.devices`` written into its sections; several devices are as many processes."""
        devices = self.train.devices
        if not isinstance(devices, Devices):
            return self
        processes = max(self.update.processes, len(devices.update.split(",")))
        model = self.reward_model
        if model is not None:
            update = model.update.updated(device=devices.update, processes=processes)
            model = model.model_copy(update={"update": update})
        return self.model_copy(
            update={
                "rollout": self.rollout.updated(device=devices.rollout),
                "evaluate": self.evaluate.updated(device=devices.rollout),
                "update": self.update.updated(device=devices.update, processes=processes),
                "reward_model": model,
            }
        )

    def identity(self) -> dict[str, Any]:
        """Everything the run's result depends on; the length of a run with a constant learning rate may grow."""
        sections = {name: getattr(self, name) for name in type(self).model_fields if name != "policy"}
        values: dict[str, Any] = {"policy": self.policy}
        for section, config in sections.items():
            if config is not None:
                values.update({f"{section}.{key}": value for key, value in config.semantic_values().items()})
        updates = [self.update, *([] if self.reward_model is None else [self.reward_model.update])]
        if all(one.schedule == "constant" and not one.warmup_steps for one in updates):
            del values["train.iterations"]
        return values


def update_config(pipeline: PipelineConfig) -> UpdateConfig:
    """The section ``update``; files as old as the run's lag are expected, older ones refused."""
    update = pipeline.update
    return (
        update if update.max_lag is not None or not pipeline.train.lag else update.updated(max_lag=pipeline.train.lag)
    )


def evaluation_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """The section ``evaluate`` of a pipeline, with what it takes over from ``rollout`` and ``judge``."""
    inherited = {**_taken(values, "rollout", _FROM_ROLLOUT), **_taken(values, "judge", _FROM_JUDGE)}
    return {**inherited, **(values.get("evaluate") or {})}


def _taken(values: Mapping[str, Any], section: str, names: tuple[str, ...]) -> dict[str, Any]:
    given = values.get(section)
    return {name: given[name] for name in names if name in given} if isinstance(given, Mapping) else {}


def read_pipeline(file: Path, changes: Mapping[str, Any] | None = None) -> PipelineConfig:
    """The pipeline in a YAML file, with nested ``changes`` on top. Raises UsageError naming wrong keys."""
    content = read_yaml(file)
    if not content:
        raise UsageError(f"'{file}' is empty. A pipeline says at least what it changes: extends: demo.yaml")
    return validated(PipelineConfig, merged(content, changes or {}), where=f"'{file}'")
