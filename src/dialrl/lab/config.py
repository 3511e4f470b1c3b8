"""Settings of the laboratory. Light to import: the command line reads them."""

from collections.abc import Sequence
from typing import Any, Self

from pydantic import model_validator

from dialrl.config import StageConfig, operational, semantic

TRAINING_SCENARIOS = 240  # of the demo world


def refuse_repeated(names: Sequence[str | float], what: str) -> None:
    """Raise ValueError for a name that stands twice: its runs would count twice."""
    twice = sorted({str(name) for name in names if list(names).count(name) > 1})
    if twice:
        raise ValueError(f"{what} {', '.join(twice)} stands twice; give each once")


class FastConfig(StageConfig):
    """A run of the fast tier."""

    iterations: int = semantic(60, ge=0, help="Policy-gradient steps.")
    groups: int = semantic(16, ge=1, le=TRAINING_SCENARIOS, help="Scenarios an iteration.")
    samples: int = semantic(8, ge=1, help="Dialogues a scenario.")
    learning_rate: float = semantic(4.0, gt=0.0, help="Step size of plain gradient ascent.")
    preset: str = semantic("mica", help="Estimator of the advantage; see: dialrl advantage --list")
    reward: tuple[str, ...] = semantic(("incremental-distance",), help="Reward channel NAME or NAME=WEIGHT.")
    gamma: float = semantic(0.85, ge=0.0, le=1.0, help="Discount a turn.")
    min_std: float = semantic(0.0, ge=0.0, help="Least spread to divide by.")
    turn_limit: int = semantic(8, ge=1, help="Policy turns a dialogue at most.")
    extra_trust: int = semantic(
        0, ge=0, le=1, help="More trust than usual before a question is answered: the payoff comes later."
    )
    judge_noise: float = semantic(0.0, ge=0.0, le=1.0, help="Probability that a graded level is off by one step.")
    judge_missing: float = semantic(0.0, ge=0.0, le=1.0, help="Probability that a judgement is missing.")
    seed: int = semantic(0, help="Run seed.")
    evaluate_every: int = semantic(10, ge=1, help="Iterations between evaluations on held-out scenarios.")
    evaluate_repeats: int = semantic(3, ge=1, help="Dialogues a held-out scenario at each evaluation.")
    files: bool = operational(
        True, help="Speak every dialogue in text and keep all files of every iteration; else the same steps in memory."
    )


class StudyConfig(StageConfig):
    """The fast tier's study: presets x settings, step sizes tuned on seeds of their own, then fresh seeds."""

    presets: tuple[str, ...] = semantic(
        (
            "mica", "mapo", "turn-only", "group-only", "batch-only", "grpo", "dr-grpo", "rloo", "reinforce++",
            "reinforce++-baseline", "mt-grpo", "gigpo",
        ),
        min_length=1, help="Estimators compared; those that need a belief do not apply here.",
    )  # fmt: skip
    settings: tuple[str, ...] = semantic(
        ("standard", "short", "delayed", "noisy"),
        min_length=1,
        help="Worlds compared: standard, short, delayed, noisy, long.",
    )
    step_sizes: tuple[float, ...] = semantic((4.0, 12.0, 36.0, 108.0), min_length=1, help="Step sizes tried.")
    tuning_seeds: int = semantic(5, ge=1, help="Seeds on which the step size is chosen (by mean final share).")
    seeds: int = semantic(20, ge=1, help="Fresh seeds at the chosen step size.")
    iterations: int = semantic(60, ge=1, help="Policy-gradient steps a run.")
    groups: int = semantic(16, ge=1, le=TRAINING_SCENARIOS, help="Scenarios an iteration.")
    samples: int = semantic(8, ge=1, help="Dialogues a scenario.")
    gamma: float = semantic(0.85, ge=0.0, le=1.0, help="Discount a turn (presets of undiscounted sums ignore it).")
    min_std: float = semantic(0.0, ge=0.0, help="Least spread to divide by.")
    evaluate_every: int = semantic(10, ge=1, help="Iterations between evaluations on held-out scenarios.")
    evaluate_repeats: int = semantic(4, ge=1, help="Dialogues a held-out scenario at each evaluation.")
    compare_with: str = semantic("mica", help="Preset that every other one is tested against, seed by seed.")
    jobs: int = operational(2, ge=1, help="Runs at a time, each on one core.")

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        for what, names in (("preset", self.presets), ("setting", self.settings), ("step size", self.step_sizes)):
            refuse_repeated(names, what)
        if any(step_size <= 0 for step_size in self.step_sizes):
            raise ValueError(f"step_sizes {self.step_sizes} must all be above 0")
        return self


class ConfirmConfig(StageConfig):
    """The confirmation tier: a few presets again, with a language model through ``dialrl train``."""

    presets: tuple[str, ...] = semantic(
        ("mica", "mapo", "turn-only", "grpo"), min_length=1, help="Estimators compared, with their published weights."
    )
    seeds: int = semantic(5, ge=1, help="Seeds, from 0.")
    iterations: int = semantic(60, ge=1, help="Iterations a run.")
    evaluate_every: int = semantic(10, ge=1, help="Iterations between evaluations on held-out scenarios.")
    pipeline: str | None = semantic(None, help="Pipeline YAML that every run follows; none: the shipped demo.yaml.")
    changes: dict[str, Any] = semantic({}, help="Changes to that pipeline, section by section.")
    compare_with: str = semantic("mica", help="Preset that every other one is tested against, seed by seed.")
    jobs: int = operational(2, ge=1, help="Runs at a time, each in a process of its own; they share the cores.")

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        refuse_repeated(self.presets, "preset")
        return self
