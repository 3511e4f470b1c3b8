"""Two processes with sharded weights compute what one process computes; their policy directories are the same kind."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from tests.update.test_gradient_equality import LOSSES, ROWS, moved, relative, step_gradients
from tests.update.test_outcome_loss import outcome_gradients
from tests.update.test_trainer import same_bits, tensors
from tests.update.two_processes import CUTS, PAIRS, RECIPES, configured
from tests.update.worlds import (
    random_rows,
    read_data,
    save_policy,
    tiny_model,
    with_outcomes,
    write_advantages,
)

from dialrl.update.batching import deal
from dialrl.update.config import UpdateConfig
from dialrl.update.optimizer import moments_of, trainable_parameters
from dialrl.update.policy_directory import read_manifest
from dialrl.update.trainer import Trainer
from dialrl.update.trainer_state import read_trainer_state

SCRIPT = Path(__file__).with_name("two_processes.py")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything the two processes wrote, side by side with their inputs."""
    folder = tmp_path_factory.mktemp("two")
    write_advantages(folder / "rows.parquet", ROWS)
    write_advantages(folder / "outcomes.parquet", with_outcomes(ROWS))
    save_policy(folder / "p0")
    for number in range(2):
        write_advantages(folder / f"{number}.parquet", with_outcomes(random_rows(8, seed=number)))
    for name in RECIPES:
        config = configured(folder, name)
        alone(config, folder / "p0", folder / "0.parquet", folder / f"{name}-alone-p1")
        alone(config, folder / f"{name}-alone-p1", folder / "1.parquet", folder / f"{name}-alone-p2")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(SCRIPT)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, str(folder)], capture_output=True, text=True, env=environment, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return folder


def alone(config: UpdateConfig, policy: Path, file: Path, output: Path) -> None:
    """One update by this process."""
    trainer = Trainer.open(policy, config, 4)
    trainer.step_file(file)
    trainer.save(output)


@pytest.mark.parametrize(("number", "cut"), PAIRS)
def test_gradients_over_two_processes_are_those_of_one(number: int, cut: int, folder: Path) -> None:
    config = UpdateConfig(**LOSSES[number], micro_batch_dialogues=1000)
    old = tiny_model("qwen3" if config.loss == "ppo" else "llama", dtype=torch.float64)
    sums, expected = step_gradients(old, moved(old), read_data(folder / "rows.parquet", config), config)
    found = torch.load(folder / f"{number}-{cut}.pt", weights_only=True)
    assert found["tokens"] == sums.tokens
    assert found["loss"] == pytest.approx(sums.loss, rel=1e-10)
    assert relative(found["gradients"], expected) <= 1e-10


@pytest.mark.parametrize("cut", range(len(CUTS)))
def test_gradients_of_a_reward_model_over_two_processes_are_those_of_one(cut: int, folder: Path) -> None:
    config = UpdateConfig(loss="outcome", outcome_beta=0.3, reference=folder / "p0")
    sums, scores, expected = outcome_gradients(folder / "outcomes.parquet", config)
    found = torch.load(folder / f"outcome-{cut}.pt", weights_only=True)
    assert found["loss"] == pytest.approx(sums.loss, rel=1e-10)
    assert found["scores"] == pytest.approx(scores.tolist(), rel=1e-10)
    assert relative(found["gradients"], expected) <= 1e-10


@pytest.mark.parametrize("name", RECIPES)
def test_weights_after_two_updates_agree_with_one_process(name: str, folder: Path) -> None:
    assert nearly_equal(folder / f"{name}-p2", folder / f"{name}-alone-p2")
    one, two = read_manifest(folder / f"{name}-alone-p2"), read_manifest(folder / f"{name}-p2")
    assert one is not None
    assert two is not None
    assert (two.step, two.optimizer_steps, two.counts) == (one.step, one.optimizer_steps, one.counts)


def nearly_equal(found: Path, expected: Path) -> bool:
    """Weights of the model, and of the adapter if there is one, to rounding (with bfloat16: of matrix products)."""
    tolerance = 2e-2 if "bf16" in found.name else 1e-5
    folders = [part for part in ("model", "adapter") if (expected / part).is_dir()]
    pairs = [(tensors(found / part), tensors(expected / part)) for part in folders]
    return all(
        one.keys() == other.keys() and relative(one, {key: value.double() for key, value in other.items()}) <= tolerance
        for one, other in pairs
    )


@pytest.mark.parametrize("name", RECIPES)
def test_two_processes_resume_bit_for_bit(name: str, folder: Path) -> None:
    assert same_bits(folder / f"{name}-p2", folder / f"{name}-resumed")


def test_each_process_writes_the_rows_it_holds(folder: Path) -> None:
    trainer = folder / "bf16-p1" / "trainer"
    for kind in ("moments", "master"):
        first, second = sorted(trainer.glob(f"{kind}-process-*.safetensors"))
        sizes = [sum(value.numel() for value in load_file(file).values()) for file in (first, second)]
        assert min(sizes) > 0.45 * sum(sizes)


@pytest.mark.parametrize("name", RECIPES)
def test_one_process_reads_what_two_wrote_bit_for_bit(name: str, folder: Path) -> None:
    state = read_trainer_state(folder / f"{name}-p1")
    again = Trainer.open(folder / f"{name}-p1", configured(folder, name), 4)
    assert state is not None
    for key, moment in moments_of(again.learner.optimizer, again.learner.model).items():
        parts = [load_file(file) for file in sorted((folder / f"{name}-p1" / "trainer").glob("moments-*.safetensors"))]
        assert torch.equal(moment, torch.cat([part[key] for part in parts if key in part]) if moment.ndim else moment)
    assert len(state.moments) == 3 * len(trainable_parameters(again.learner.model))


@pytest.mark.parametrize("name", RECIPES)
def test_one_process_continues_what_two_began_and_two_what_one_began(name: str, folder: Path, tmp_path: Path) -> None:
    alone(configured(folder, name), folder / f"{name}-p1", folder / "1.parquet", tmp_path / f"{name}-p2")
    assert nearly_equal(tmp_path / f"{name}-p2", folder / f"{name}-p2")
    assert nearly_equal(folder / f"{name}-continued", folder / f"{name}-alone-p2")


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 50), max_size=20), st.integers(1, 5))
def test_every_pass_is_dealt_once_and_all_processes_make_equally_many(costs: list[int], processes: int) -> None:
    dealt = deal(costs, processes)
    assert sorted(index for one in dealt for index in one if index is not None) == list(range(len(costs)))
    assert len({len(one) for one in dealt}) <= 1
