"""What each of two processes does in ``test_distributed``; started by torchrun. Not a test module.

torchrun --nproc-per-node 2 two_processes.py FOLDER
"""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.update.test_gradient_equality import LOSSES, moved
from tests.update.worlds import read_data, tiny_model

from dialrl.model.distributed import whole
from dialrl.update.config import UpdateConfig
from dialrl.update.learner import Learner
from dialrl.update.passes import Passes
from dialrl.update.plan import plan_steps
from dialrl.update.trainer import Trainer

RECIPE = {"learning_rate": 1e-2, "max_mismatch": 100.0, "epochs": 2, "mini_batch_dialogues": 3}
RECIPES = {
    "fp32": {},
    "bf16": {"precision": "bf16"},
    "kl": {"kl_coefficient": 0.1, "reference": "p0"},
    "outcome": {"loss": "outcome", "outcome_beta": 0.3, "reference": "p0"},
    "lora": {"lora_rank": 4},
    "lora-packed": {"lora_rank": 3, "layout": "packed"},
}
CUTS = (
    {"micro_batch_dialogues": 3},
    {"layout": "packed", "micro_batch_tokens": 40, "head_chunk_tokens": 5},
    {"micro_batch_dialogues": 1, "head_chunk_tokens": 64},
    {"layout": "packed", "micro_batch_dialogues": 2},
    {"layout": "packed", "micro_batch_dialogues": 7, "head_chunk_tokens": 1},
    {"micro_batch_dialogues": 1000},
)
# Of LOSSES: ppo in every cut; with entropy, gspo by dialogue and by turn in two.
PAIRS = [(0, cut) for cut in range(len(CUTS))] + [(number, cut) for number in (2, 6, 7) for cut in (0, 1)]


def configured(folder: Path, name: str) -> UpdateConfig:
    """The options of one of RECIPES; a reference lies in ``folder``."""
    options = {**RECIPE, **RECIPES[name]}
    if "reference" in options:
        options["reference"] = folder / str(options["reference"])
    return UpdateConfig(**options)  # type: ignore[arg-type]


def gradients(folder: Path, number: int, cut: int) -> None:
    """pi_old of the file's first policy, the gradient at another, over both processes, in float64."""
    config = UpdateConfig(**LOSSES[number], **CUTS[cut])  # type: ignore[arg-type]
    kind = "qwen3" if config.loss == "ppo" else "llama"
    data = read_data(folder / "rows.parquet", config)
    (step,) = plan_steps(data, config, step=0)
    old = Learner(tiny_model(kind, dtype=torch.float64), config)
    passes = Passes(old.model, data, config, None, old.layout, old.forward, old.group)
    passes.remember(step.dialogues)
    new = Learner(moved(tiny_model(kind, dtype=torch.float64)), config)
    passes.model, passes._forward = new.model, new.forward
    sums = passes.accumulate(step.dialogues, step.weights_T, first=False)
    found = {name: whole(parameter.grad) for name, parameter in new.model.named_parameters()}
    if new.group.rank == 0:
        torch.save({"loss": sums.loss, "tokens": sums.tokens, "gradients": found}, folder / f"{number}-{cut}.pt")


def outcome_gradients(folder: Path, cut: int) -> None:
    """Loss, scores and gradient of a reward model over both processes, in float64."""
    recipe = {"loss": "outcome", "outcome_beta": 0.3, "reference": folder / "p0"}
    config = UpdateConfig(**recipe, **CUTS[cut])  # type: ignore[arg-type]
    data = read_data(folder / "outcomes.parquet", config)
    (step,) = plan_steps(data, config, step=0)
    phi, reference = moved(tiny_model("llama", dtype=torch.float64)), tiny_model("llama", dtype=torch.float64)
    learner = Learner(phi, config, reference)
    passes = Passes(
        learner.model, data, config, reference, learner.layout, learner.forward, learner.group,
        reference_forward=learner.reference_forward,
    )  # fmt: skip
    sums = passes.accumulate(step.dialogues, step.weights_T, first=True)
    found = {name: whole(parameter.grad) for name, parameter in learner.model.named_parameters()}
    if learner.group.rank == 0:
        scores = passes.scores_of(step.dialogues).tolist()
        torch.save({"loss": sums.loss, "scores": scores, "gradients": found}, folder / f"outcome-{cut}.pt")


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    for number, cut in PAIRS:
        gradients(folder, number, cut)
    for cut in range(len(CUTS)):
        outcome_gradients(folder, cut)
    for name in RECIPES:
        chain(folder, name, configured(folder, name))
    torch.distributed.destroy_process_group()


def chain(folder: Path, name: str, config: UpdateConfig) -> None:
    """Two updates by a trainer that stays up, by one that is opened in between, and after one process's first."""
    trainer = Trainer.open(folder / "p0", config, 4)
    trainer.step_file(folder / "0.parquet")
    trainer.save(folder / f"{name}-p1")
    resumed = Trainer.open(folder / f"{name}-p1", config, 4)
    continued = Trainer.open(folder / f"{name}-alone-p1", config, 4)
    for one, end in ((trainer, "p2"), (resumed, "resumed"), (continued, "continued")):
        one.step_file(folder / "1.parquet")
        one.save(folder / f"{name}-{end}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
