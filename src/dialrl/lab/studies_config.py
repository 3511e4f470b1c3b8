"""Settings of the laboratory's smaller studies: judge faults, variance of the gradient, cost. Light to import."""

from dialrl.config import StageConfig, operational, semantic
from dialrl.lab.config import FastConfig, StudyConfig


class FaultyConfig(FastConfig):
    """A run of the fast tier whose judge may also err in one direction."""

    judge_lenient: float = semantic(
        0.0, ge=0.0, le=1.0, help="Probability that a harmful mark of a reply is overlooked."
    )
    judge_halo: float = semantic(
        0.0, ge=0.0, le=1.0, help="Probability that a reply that helps with nothing is credited with a step."
    )


class NoiseConfig(StudyConfig):
    """The judge-noise study: presets under judges with one fault each, at several strengths."""

    presets: tuple[str, ...] = semantic(
        ("mica", "mapo", "turn-only", "grpo"), min_length=1, help="Estimators compared."
    )
    settings: tuple[str, ...] = semantic(
        (
            "exact", "noise=0.2", "noise=0.4", "missing=0.2", "missing=0.4", "lenient=0.5", "lenient=1", "halo=0.5",
            "halo=1",
        ),
        min_length=1,
        help="Judges compared: exact, or FAULT=STRENGTH. noise: a level is off by one step; missing: no judgement;"
        " lenient: a harmful mark is overlooked; halo: a reply that helps with nothing is credited with a step.",
    )  # fmt: skip
    tuning_seeds: int = semantic(3, ge=1, help="Seeds on which the step size is chosen, with an exact judge.")
    seeds: int = semantic(20, ge=1, help="Fresh seeds a judge at the chosen step size.")
    iterations: int = semantic(40, ge=1, help="Policy-gradient steps a run.")


class VarianceConfig(StageConfig):
    """The variance study: the gradient of each preset over many batches of the same policy's dialogues."""

    presets: tuple[str, ...] = semantic(
        (
            "mica", "mapo", "turn-only", "group-only", "batch-only", "grpo", "dr-grpo", "rloo", "reinforce++",
            "reinforce++-baseline", "mt-grpo", "gigpo",
        ),
        min_length=1, help="Estimators compared, all on the same dialogues.",
    )  # fmt: skip
    updates: tuple[int, ...] = semantic(
        (0, 2, 20), min_length=1, help="Policies: the start after so many steps along the exact gradient."
    )
    step_size: float = semantic(1.0, gt=0.0, help="Step size of those steps.")
    batches: int = semantic(400, ge=2, help="Batches a policy.")
    groups: int = semantic(16, ge=1, help="Scenarios a batch.")
    samples: int = semantic(8, ge=2, help="Dialogues a scenario.")
    turn_limit: int = semantic(
        6, ge=1, le=6, help="Policy turns a dialogue at most: up to 6 the exact gradient is computed in a minute."
    )
    gamma: float = semantic(0.85, ge=0.0, le=1.0, help="Discount a turn (presets of undiscounted sums ignore it).")
    judge_noise: float = semantic(0.0, ge=0.0, le=1.0, help="Probability that a graded level is off by one step.")
    seed: int = semantic(0, help="Run seed.")
    jobs: int = operational(1, ge=1, help="Policies at a time, each on one core.")


class CostConfig(StageConfig):
    """The cost table: several replies a state against mixed credit, at equal policy turns an update."""

    methods: tuple[str, ...] = semantic(
        ("mica", "mapo", "turn-only", "grpo", "branch-return", "branch-reward"),
        min_length=1,
        help="Presets, and branch-return (replies to one state compared by the rest of a dialogue each) and"
        " branch-reward (compared by the judge's verdict on the reply alone).",
    )
    branches: int = semantic(4, ge=2, help="Replies a state in the branch methods.")
    groups: int = semantic(16, ge=1, help="Scenarios an update of the presets; this sets the budget for all.")
    samples: int = semantic(8, ge=2, help="Dialogues a scenario of the presets.")
    iterations: int = semantic(40, ge=1, help="Updates a run.")
    step_sizes: tuple[float, ...] = semantic((4.0, 12.0, 36.0, 108.0), min_length=1, help="Step sizes tried.")
    tuning_seeds: int = semantic(3, ge=1, help="Seeds on which the step size is chosen (by mean final share).")
    seeds: int = semantic(10, ge=1, help="Fresh seeds at the chosen step size.")
    turn_limit: int = semantic(8, ge=1, help="Policy turns a dialogue at most.")
    gamma: float = semantic(0.85, ge=0.0, le=1.0, help="Discount a turn.")
    evaluate_every: int = semantic(5, ge=1, help="Updates between evaluations on held-out scenarios.")
    evaluate_repeats: int = semantic(4, ge=1, help="Dialogues a held-out scenario at each evaluation.")
    compare_with: str = semantic("mica", help="Method that every other one is tested against, seed by seed.")
    jobs: int = operational(1, ge=1, help="Runs at a time, each on one core.")
