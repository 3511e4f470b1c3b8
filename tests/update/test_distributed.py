"""Two processes with sharded weights compute what one process computes; their policy directories are the same kind."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.update.test_gradient_equality import LOSSES, ROWS, moved, relative, step_gradients
from tests.update.test_trainer import same_bits, tensors
from tests.update.two_processes import CUTS, NUMBERS
from tests.update.worlds import random_rows, read_data, save_policy, tiny_model, write_advantages

from dialrl.update.batching import deal
from dialrl.update.config import UpdateConfig
from dialrl.update.policy_directory import read_manifest
from dialrl.update.trainer import Trainer

SCRIPT = Path(__file__).with_name("two_processes.py")
RECIPE = {"learning_rate": 1e-2, "max_mismatch": 100.0, "epochs": 2, "mini_batch_dialogues": 3}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything the two processes wrote, side by side with their inputs."""
    folder = tmp_path_factory.mktemp("two")
    write_advantages(folder / "rows.parquet", ROWS)
    save_policy(folder / "p0")
    for number in range(2):
        write_advantages(folder / f"{number}.parquet", random_rows(8, seed=number))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(SCRIPT)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, str(folder)], capture_output=True, text=True, env=environment, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return folder


@pytest.mark.parametrize("cut", range(len(CUTS)))
@pytest.mark.parametrize("number", NUMBERS)
def test_gradients_over_two_processes_are_those_of_one(number: int, cut: int, folder: Path) -> None:
    config = UpdateConfig(**LOSSES[number], micro_batch_dialogues=1000)
    old = tiny_model("qwen3" if config.loss == "ppo" else "llama", dtype=torch.float64)
    sums, expected = step_gradients(old, moved(old), read_data(folder / "rows.parquet", config), config)
    found = torch.load(folder / f"{number}-{cut}.pt", weights_only=True)
    assert found["tokens"] == sums.tokens
    assert found["loss"] == pytest.approx(sums.loss, rel=1e-10)
    assert relative(found["gradients"], expected) <= 1e-10


def test_weights_after_two_updates_agree_with_one_process(folder: Path, tmp_path: Path) -> None:
    trainer = Trainer.open(folder / "p0", UpdateConfig(**RECIPE), 4)  # type: ignore[arg-type]
    for number in range(2):
        trainer.step_file(folder / f"{number}.parquet")
    trainer.save(tmp_path / "one")
    alone, together = tensors(tmp_path / "one" / "model"), tensors(folder / "fp32-p2" / "model")
    assert alone.keys() == together.keys()
    assert relative(together, {name: tensor.double() for name, tensor in alone.items()}) <= 1e-5
    one, two = read_manifest(tmp_path / "one"), read_manifest(folder / "fp32-p2")
    assert one is not None
    assert two is not None
    assert (two.step, two.optimizer_steps, two.counts) == (one.step, one.optimizer_steps, one.counts)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_two_processes_resume_bit_for_bit(precision: str, folder: Path) -> None:
    assert same_bits(folder / f"{precision}-p2", folder / f"{precision}-resumed")


def test_one_process_continues_what_two_began(folder: Path, tmp_path: Path) -> None:
    trainer = Trainer.open(folder / "fp32-p1", UpdateConfig(**RECIPE), 4)  # type: ignore[arg-type]
    trainer.step_file(folder / "1.parquet")
    trainer.save(tmp_path / "p2")
    expected = {name: tensor.double() for name, tensor in tensors(folder / "fp32-p2" / "model").items()}
    assert relative(tensors(tmp_path / "p2" / "model"), expected) <= 1e-5


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 50), max_size=20), st.integers(1, 5))
def test_every_pass_is_dealt_once_and_all_processes_make_equally_many(costs: list[int], processes: int) -> None:
    dealt = deal(costs, processes)
    assert sorted(index for one in dealt for index in one if index is not None) == list(range(len(costs)))
    assert len({len(one) for one in dealt}) <= 1
