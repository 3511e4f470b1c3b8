"""A chain of updates is the same as one trainer that stays up, and both repeat bit for bit (field case 33)."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.update.worlds import random_rows, save_policy, tiny_model, turn_row, with_sampler, write_advantages

from dialrl.errors import InputError, NumericalError
from dialrl.model.digest import policy_digest
from dialrl.model.loading import LoadingSettings, load_model
from dialrl.update.config import UpdateConfig
from dialrl.update.data import training_data
from dialrl.update.learner import Learner
from dialrl.update.plan import plan_steps
from dialrl.update.policy_directory import read_manifest
from dialrl.update.sequences import Limits, build_sequences
from dialrl.update.statistics import FileMetrics
from dialrl.update.trainer import Trainer
from dialrl.update.trainer_state import read_trainer_state
from dialrl.update.turns import Turn

BASE: dict[str, Any] = {"learning_rate": 1e-2, "max_mismatch": 100.0}
RECIPES: list[dict[str, Any]] = [
    {},
    {"epochs": 2, "mini_batch_dialogues": 3, "schedule": "cosine", "warmup_steps": 1, "weight_decay": 0.1},
    {"precision": "bf16", "schedule": "linear"},
]


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    return save_policy(tmp_path / "p0")


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    return [write_advantages(tmp_path / f"{number}.parquet", random_rows(8, seed=number)) for number in range(4)]


def tensors(directory: Path) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = {}
    for file in sorted(directory.rglob("*.safetensors")):
        found |= {f"{file.parent.name}/{name}": tensor for name, tensor in load_file(file).items()}
    return found


def same_bits(one: Path, other: Path) -> bool:
    left, right = tensors(one), tensors(other)
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def run(policy: Path, files: list[Path], output: Path, config: UpdateConfig, total_steps: int = 4) -> list[FileMetrics]:
    trainer = Trainer.open(policy, config, total_steps)
    metrics = [trainer.step_file(file) for file in files]
    trainer.save(output)
    return metrics


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: "-".join(map(str, recipe.values())) or "plain")
def test_four_steps_at_once_equal_two_and_two_and_one_by_one(
    recipe: dict[str, Any], policy: Path, files: list[Path], tmp_path: Path
) -> None:
    config = UpdateConfig(**BASE, **recipe)
    run(policy, files, tmp_path / "unbroken", config)
    run(policy, files[:2], tmp_path / "half", config)
    run(tmp_path / "half", files[2:], tmp_path / "resumed", config)
    previous = policy
    for number, file in enumerate(files):
        run(previous, [file], tmp_path / f"chain{number}", config)
        previous = tmp_path / f"chain{number}"
    assert same_bits(tmp_path / "unbroken", tmp_path / "resumed")
    assert same_bits(tmp_path / "unbroken", tmp_path / "chain3")
    assert policy_digest(tmp_path / "unbroken" / "model") != policy_digest(policy)


def test_a_trainer_that_stays_up_and_saves_every_time_equals_the_chain(
    policy: Path, files: list[Path], tmp_path: Path
) -> None:
    trainer = Trainer.open(policy, UpdateConfig(**BASE), 4)
    previous = policy
    for number, file in enumerate(files):
        trainer.step_file(file)
        kept = trainer.save(tmp_path / f"up{number}")
        run(previous, [file], tmp_path / f"chain{number}", UpdateConfig(**BASE))
        previous = tmp_path / f"chain{number}"
        assert read_manifest(previous) == kept
        assert same_bits(tmp_path / f"up{number}", previous)


@pytest.mark.parametrize("threads", [1, 2])
def test_the_same_update_twice_gives_the_same_bits(
    threads: int, policy: Path, files: list[Path], tmp_path: Path
) -> None:
    before = torch.get_num_threads()
    for name in ("one", "two"):
        trainer = Trainer.open(policy, UpdateConfig(**BASE))
        torch.set_num_threads(threads)  # loading a tiny model sets one thread
        for file in files:
            trainer.step_file(file)
        trainer.save(tmp_path / name)
    torch.set_num_threads(before)
    assert same_bits(tmp_path / "one", tmp_path / "two")


def test_the_manifest_names_parent_files_and_step(policy: Path, files: list[Path], tmp_path: Path) -> None:
    run(policy, files[:1], tmp_path / "p1", UpdateConfig(**BASE))
    run(tmp_path / "p1", files[1:2], tmp_path / "p2", UpdateConfig(**BASE))
    first, second = read_manifest(tmp_path / "p1"), read_manifest(tmp_path / "p2")
    assert first is not None
    assert second is not None
    assert first.parent == policy_digest(policy)
    assert second.parent == first.digest == policy_digest(tmp_path / "p1" / "model")
    assert [file.name for file in second.inputs] == ["1.parquet"]
    assert (second.step, second.optimizer_steps, second.total_steps) == (2, 2, 4)


def test_a_replayed_update_adopts_the_policy_it_wrote_before(policy: Path, files: list[Path], tmp_path: Path) -> None:
    run(policy, files[:1], tmp_path / "p1", UpdateConfig(**BASE))
    trainer = Trainer.open(policy, UpdateConfig(**BASE), 4)
    with pytest.raises(InputError, match="is the policy of update 1; expected that of update 0"):
        trainer.adopt(tmp_path / "p1")
    trainer.step_file(files[0])
    trainer.adopt(tmp_path / "p1")
    trainer.step_file(files[1])
    trainer.save(tmp_path / "p2")
    run(tmp_path / "p1", files[1:2], tmp_path / "expected", UpdateConfig(**BASE))
    assert same_bits(tmp_path / "p2", tmp_path / "expected")
    assert read_manifest(tmp_path / "p2") == read_manifest(tmp_path / "expected")


def test_a_fresh_optimizer_has_no_moments_and_stays_in_its_run(policy: Path, files: list[Path], tmp_path: Path) -> None:
    run(policy, files[:1], tmp_path / "p1", UpdateConfig(**BASE))
    trainer = Trainer.open(tmp_path / "p1", UpdateConfig(**BASE, fresh_optimizer=True), 4)
    assert (trainer.step, trainer.learner.steps) == (1, 1)
    assert not trainer.learner.optimizer.state


def test_a_policy_saved_without_its_state_is_not_continued_silently(
    policy: Path, files: list[Path], tmp_path: Path
) -> None:
    trainer = Trainer.open(policy, UpdateConfig(**BASE))
    trainer.step_file(files[0])
    trainer.save(tmp_path / "p1", with_trainer_state=False)
    with pytest.raises(InputError, match=r"result of 1 updates but holds no trainer/"):
        Trainer.open(tmp_path / "p1", UpdateConfig(**BASE))


def test_rounding_the_saved_weights_loses_nothing_of_the_master(
    policy: Path, files: list[Path], tmp_path: Path
) -> None:
    config = UpdateConfig(**BASE, precision="bf16")
    run(policy, files[:1], tmp_path / "p1", config)
    stored = tensors(tmp_path / "p1")
    name = "model.embed_tokens.weight"
    assert stored[f"model/{name}"].dtype == torch.bfloat16
    assert stored[f"trainer/{name}"].dtype == torch.float32
    assert torch.equal(stored[f"trainer/{name}"].bfloat16(), stored[f"model/{name}"])
    reopened = Trainer.open(tmp_path / "p1", config)
    assert torch.equal(reopened.learner.model.get_parameter(name), stored[f"trainer/{name}"])


def test_state_of_another_architecture_is_refused(policy: Path, files: list[Path], tmp_path: Path) -> None:
    run(policy, files[:1], tmp_path / "p1", UpdateConfig(**BASE))
    smaller = Learner(tiny_model(layers=1), UpdateConfig(**BASE))
    with pytest.raises(InputError, match=r"'model.layers.1.*which the policy does not have.*--fresh-optimizer"):
        Trainer(smaller, tmp_path, "sha256:x", state=read_trainer_state(tmp_path / "p1"))


def test_a_state_of_other_shapes_is_refused(policy: Path, files: list[Path], tmp_path: Path) -> None:
    run(policy, files[:1], tmp_path / "p1", UpdateConfig(**BASE))
    file = next((tmp_path / "p1" / "trainer").glob("moments-*.safetensors"))
    save_file(load_file(file) | {"exp_avg.model.norm.weight": torch.zeros(3)}, file)
    state = read_trainer_state(tmp_path / "p1")
    with pytest.raises(InputError, match=r"'exp_avg.model.norm.weight': got \(3,\), the policy's has shape \(16,\)"):
        Trainer(Learner(tiny_model(), UpdateConfig(**BASE)), tmp_path, "sha256:x", state=state)


def test_a_trainer_directory_that_is_not_whole_is_refused(policy: Path, files: list[Path], tmp_path: Path) -> None:
    run(policy, files[:1], tmp_path / "p1", UpdateConfig(**BASE))
    (tmp_path / "p1" / "trainer" / "trainer.json").unlink()
    with pytest.raises(InputError, match=r"trainer.json' does not exist\. The policy directory is not whole"):
        Trainer.open(tmp_path / "p1", UpdateConfig(**BASE))


@pytest.mark.parametrize(
    ("place", "remedy"),
    [("trainer/moments", "--fresh-optimizer"), ("trainer/master", "--fresh-optimizer"), ("model/model", "again")],
)
def test_a_file_of_a_policy_that_was_cut_short_is_named_with_what_to_do(
    place: str, remedy: str, policy: Path, files: list[Path], tmp_path: Path
) -> None:
    config = UpdateConfig(**BASE, precision="bf16")
    run(policy, files[:1], tmp_path / "p1", config)
    (file,) = (tmp_path / "p1").glob(f"{place}*.safetensors")
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(InputError, match=rf"{file.name}' is (damaged|cut short).*{remedy}"):
        Trainer.open(tmp_path / "p1", config)


def test_on_policy_figures(policy: Path, tmp_path: Path) -> None:
    """The first step's ratio is 1 by construction, and the loss about 0; what tells is beside it (field case 21)."""
    model = load_model(policy, LoadingSettings())
    rows = [
        turn_row("g", sample, 0, [1, 2], [3 + sample, 5], advantage=advantage)
        for sample, advantage in enumerate((1.0, -1.0, 0.5, -0.5, 0.0))
    ]
    path = write_advantages(tmp_path / "a.parquet", with_sampler(rows, model), policy_digest=policy_digest(policy))
    trainer = Trainer.open(policy, UpdateConfig(learning_rate=1e-3))
    metrics = trainer.step_file(path)
    (row,) = metrics.rows
    assert row["ratio_mean"] == row["ratio_max"] == 1.0
    assert row["clipped_share"] == row["kl_old_new"] == 0.0
    assert abs(row["loss"]) < 1e-6
    assert row["mean_abs_advantage"] == pytest.approx(0.6)
    assert row["gradient_norm"] > 0
    assert row["mismatch_mean"] < 1e-3
    assert (row["trained_tokens"], row["zero_advantage_tokens"], row["dialogues"]) == (10, 2, 5)
    assert row["advantage_std"] == pytest.approx(0.7071, abs=1e-4)
    assert 0 < row["entropy"] < 2.4849067  # log of the vocabulary, 12
    assert metrics.warnings == ()


def test_a_sampler_that_disagrees_is_reported_and_beyond_the_limit_refused(policy: Path, tmp_path: Path) -> None:
    model = load_model(policy, LoadingSettings())
    rows = with_sampler(random_rows(6), model, noise=0.05)
    path = write_advantages(tmp_path / "a.parquet", rows, policy_digest=policy_digest(policy))
    metrics = Trainer.open(policy, UpdateConfig()).step_file(path)
    assert metrics.rows[0]["mismatch_mean"] == pytest.approx(0.04, abs=0.02)
    assert "On-policy log-probs of sampler and trainer differ" in metrics.warnings[0]
    with pytest.raises(InputError, match=r"differ by 0\.0\d+ in the mean over \d+ tokens; max_mismatch allows 0.001"):
        Trainer.open(policy, UpdateConfig(max_mismatch=1e-3)).step_file(path)


def test_a_file_of_another_policy_is_said_to_be_one(policy: Path, files: list[Path], tmp_path: Path) -> None:
    path = write_advantages(tmp_path / "a.parquet", random_rows(4), policy_digest="sha256:older")
    metrics = Trainer.open(policy, UpdateConfig(**BASE)).step_file(path)
    assert "rolled out by policy sha256:older" in metrics.warnings[0]


def test_a_later_step_of_the_file_has_ratios_against_the_policy_before_it(
    policy: Path, files: list[Path], tmp_path: Path
) -> None:
    config = UpdateConfig(**BASE, epochs=2)
    first, second = Trainer.open(policy, config).step_file(files[0]).rows
    assert first["ratio_max"] == 1.0
    assert second["ratio_max"] > 1.0
    assert second["kl_old_new"] > 0.0


def test_every_mini_batch_of_a_file_is_compared_with_the_policy_before_the_file(
    policy: Path, files: list[Path], tmp_path: Path
) -> None:
    """At a vanishing step size every ratio is 1, also of dialogues that the first optimiser step did not train."""
    config = UpdateConfig(**{**BASE, "learning_rate": 1e-12}, mini_batch_dialogues=2, epochs=2)
    rows = Trainer.open(policy, config).step_file(files[0]).rows
    assert len(rows) == 8
    for row in rows:
        assert row["ratio_max"] == pytest.approx(1.0, abs=1e-5)
        assert row["mismatch_mean"] > 0.1


def test_a_loss_that_is_no_number_stops_the_step(policy: Path, files: list[Path]) -> None:
    """A clip gives no gradient for it, so the gradient norm alone would not tell."""
    learner = Trainer.open(policy, UpdateConfig(**BASE)).learner
    with pytest.raises(NumericalError, match=r"Loss nan and gradient norm 0.0 at optimiser step 1"):
        learner._optimizer_step(float("nan"))
    assert learner.steps == 0


def test_a_model_that_gives_nan_names_the_token_and_keeps_the_good_policy(
    policy: Path, files: list[Path], tmp_path: Path
) -> None:
    # Field case 6.
    trainer = Trainer.open(policy, UpdateConfig(**BASE))
    with torch.no_grad():
        trainer.learner.model.get_parameter("model.norm.weight").fill_(torch.nan)
    with pytest.raises(NumericalError, match=r"at a trained place: dialogue 'g\d+/\d', turn \d, token 0"):
        trainer.step_file(files[0])
    assert Trainer.open(policy, UpdateConfig(**BASE)).digest == policy_digest(policy)


def test_a_gradient_that_is_not_finite_names_its_dialogue_turn_and_token(policy: Path, tmp_path: Path) -> None:
    rows = [
        turn_row(group, 0, turn, [1, 2], [3, 4], advantage=1e150 if (group, turn) == ("g1", 1) else 1.0)
        for group in ("g0", "g1", "g2")
        for turn in range(2)
    ]
    trainer = Trainer.open(policy, UpdateConfig(**BASE))
    before = {name: p.detach().clone() for name, p in trainer.learner.model.named_parameters()}
    with pytest.raises(
        NumericalError, match=r"First of dialogue 'g1/0', turn 1, token 0 \(advantage .*\)\. The step was not made"
    ):
        trainer.step_file(write_advantages(tmp_path / "a.parquet", rows))
    assert all(torch.equal(p, before[name]) for name, p in trainer.learner.model.named_parameters())


def test_the_last_token_of_the_prompt_gets_its_gradient_from_the_first_reply_token(policy: Path) -> None:
    """The reply's first token is predicted at the prompt's last place; later prompts get none of their own."""
    model = load_model(policy, LoadingSettings())
    embeddings: list[torch.Tensor] = []

    def keep(_: Any, __: Any, output: torch.Tensor) -> None:
        output.retain_grad()
        embeddings.append(output)

    learner = Learner(model, UpdateConfig(**BASE))
    model.get_input_embeddings().register_forward_hook(keep)
    turn = Turn("g/0", 0, 0, np.array([4, 5, 6]), np.array([7]), np.array([-1.0]), 1.0, False, True, None)
    data = training_data(list(build_sequences([turn], lambda _: True, Limits(256))))
    list(learner.train(data, plan_steps(data, learner.config, step=0), 1e-3))
    assert embeddings[0].shape[1] == 3
    assert embeddings[0].grad is not None
    assert (embeddings[0].grad.abs().sum(-1) > 0).all()
