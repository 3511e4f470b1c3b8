"""Adapters: trained beside frozen weights, saved as adapter and merged, continued bit for bit."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.update.test_trainer import BASE, same_bits, tensors
from tests.update.worlds import random_rows, save_policy, write_advantages

from dialrl.errors import InputError
from dialrl.model.loading import LoadingSettings, load_model
from dialrl.update.config import UpdateConfig
from dialrl.update.trainer import Trainer

peft = pytest.importorskip("peft")
LORA = UpdateConfig(**BASE, lora_rank=4)
IDS = torch.tensor([[1, 2, 3, 4, 5]])


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    return save_policy(tmp_path / "p0")


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    return [write_advantages(tmp_path / f"{number}.parquet", random_rows(8, seed=number)) for number in range(2)]


def run(policy: Path, files: list[Path], output: Path, config: UpdateConfig = LORA) -> Any:
    trainer = Trainer.open(policy, config)
    for file in files:
        trainer.step_file(file)
    trainer.save(output)
    return trainer


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        return model(IDS).logits


def test_adapter_and_merged_model_are_the_policy_that_was_trained(
    policy: Path, files: list[Path], tmp_path: Path
) -> None:
    trained = logits(run(policy, files, tmp_path / "p1").learner.model)
    base = load_model(policy, LoadingSettings())
    assert (trained - logits(base)).abs().max() > 1e-2
    merged = load_model(tmp_path / "p1", LoadingSettings())
    adapted = peft.PeftModel.from_pretrained(base, tmp_path / "p1" / "adapter").eval()
    torch.testing.assert_close(logits(merged), trained, rtol=0, atol=1e-5)
    torch.testing.assert_close(logits(adapted), trained, rtol=0, atol=1e-5)


def test_the_base_is_frozen_and_only_the_adapter_has_moments(policy: Path, files: list[Path], tmp_path: Path) -> None:
    trainer = run(policy, files[:1], tmp_path / "p1")
    before = load_model(policy, LoadingSettings()).get_parameter("model.norm.weight")
    assert torch.equal(trainer.learner.model.get_parameter("model.norm.weight"), before)
    assert all(".lora_" in name for name in tensors(tmp_path / "p1" / "trainer"))


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_chain_of_updates_equals_a_trainer_that_stays_up(
    precision: str, policy: Path, files: list[Path], tmp_path: Path
) -> None:
    config = UpdateConfig(**BASE, lora_rank=4, precision=precision)  # type: ignore[arg-type]
    run(policy, files, tmp_path / "unbroken", config)
    run(policy, files[:1], tmp_path / "half", config)
    run(tmp_path / "half", files[1:], tmp_path / "chain", config)
    assert same_bits(tmp_path / "unbroken", tmp_path / "chain")


def test_another_rank_or_a_changed_base_is_refused(policy: Path, files: list[Path], tmp_path: Path) -> None:
    run(policy, files[:1], tmp_path / "p1")
    with pytest.raises(InputError, match="another rank or other layers"):
        Trainer.open(tmp_path / "p1", UpdateConfig(**BASE, lora_rank=2))
    with pytest.raises(InputError, match=r"which the policy does not have.*--fresh-optimizer"):
        Trainer.open(tmp_path / "p1", UpdateConfig(**BASE))
    save_policy(policy, seed=5)
    with pytest.raises(InputError, match=r"The base model '.*p0' has digest sha256:.* expects sha256:"):
        Trainer.open(tmp_path / "p1", LORA)


def test_a_file_without_signal_leaves_the_policy_as_it_was(policy: Path, files: list[Path], tmp_path: Path) -> None:
    flat = [{**row, "advantage": 0.0} for row in random_rows(4)]
    trainer = run(policy, [write_advantages(tmp_path / "flat.parquet", flat)], tmp_path / "p1")
    assert trainer.digest == Trainer.open(policy, LORA).digest


def test_an_adapter_that_was_cut_short_is_named_with_what_to_do(
    policy: Path, files: list[Path], tmp_path: Path
) -> None:
    run(policy, files[:1], tmp_path / "p1")
    file = tmp_path / "p1" / "adapter" / "adapter_model.safetensors"
    file.write_bytes(file.read_bytes()[:-8])
    with pytest.raises(InputError, match=r"adapter_model\.safetensors' is damaged or cut short.*Run the update again"):
        Trainer.open(tmp_path / "p1", LORA)
