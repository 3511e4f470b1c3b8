"""Settings of the laboratory. Light to import: the command line reads them."""

from dialrl.config import StageConfig, operational, semantic


class FastConfig(StageConfig):
    """A run of the fast tier."""

    iterations: int = semantic(60, ge=0, help="Policy-gradient steps.")
    groups: int = semantic(16, ge=1, help="Scenarios an iteration.")
    samples: int = semantic(8, ge=1, help="Dialogues a scenario.")
    learning_rate: float = semantic(4.0, gt=0.0, help="Step size of plain gradient ascent.")
    preset: str = semantic("mica", help="Estimator of the advantage; see: dialrl advantage --list")
    reward: tuple[str, ...] = semantic(("incremental-distance",), help="Reward channel NAME or NAME=WEIGHT.")
    gamma: float = semantic(0.85, ge=0.0, le=1.0, help="Discount a turn.")
    min_std: float = semantic(0.0, ge=0.0, help="Least spread to divide by.")
    judge_noise: float = semantic(0.0, ge=0.0, le=1.0, help="Probability that a graded level is off by one step.")
    judge_missing: float = semantic(0.0, ge=0.0, le=1.0, help="Probability that a judgement is missing.")
    seed: int = semantic(0, help="Run seed.")
    evaluate_every: int = operational(10, ge=1, help="Iterations between evaluations on held-out scenarios.")
    evaluate_repeats: int = operational(3, ge=1, help="Dialogues a held-out scenario at each evaluation.")
