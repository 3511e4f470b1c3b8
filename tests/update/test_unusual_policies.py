"""Policies that are saved rounded, continued afresh, scaled otherwise, or of a family whose memory is not known."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.update.worlds import VOCABULARY, random_rows, save_policy, write_advantages
from transformers import GPT2Config, GPT2LMHeadModel

from dialrl.errors import InputError
from dialrl.update import memory
from dialrl.update.config import UpdateConfig
from dialrl.update.memory import ModelShape, UnknownShapeError, memory_lines
from dialrl.update.policy_directory import read_manifest
from dialrl.update.trainer import Trainer

BASE: dict[str, Any] = {"learning_rate": 1e-2, "max_mismatch": 100.0}


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    return save_policy(tmp_path / "p0")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_advantages(tmp_path / "a.parquet", random_rows(4))


@pytest.fixture
def flat(tmp_path: Path) -> Path:
    return write_advantages(tmp_path / "flat.parquet", [{**row, "advantage": 0.0} for row in random_rows(4)])


def update(policy: Path, file: Path, output: Path, **options: Any) -> Trainer:
    trainer = Trainer.open(policy, UpdateConfig(**{**BASE, **options}), options.pop("total_steps", None))
    trainer.step_file(file)
    trainer.save(output)
    return trainer


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_full_precision_outlives_an_update_that_changes_nothing(
    precision: str, policy: Path, file: Path, flat: Path, tmp_path: Path
) -> None:
    trained = update(policy, file, tmp_path / "p1", precision="bf16").learner.model
    update(tmp_path / "p1", flat, tmp_path / "p2", precision=precision)
    update(tmp_path / "p2", flat, tmp_path / "p3", precision=precision)
    later = Trainer.open(tmp_path / "p3", UpdateConfig(**BASE)).learner.model
    for one, other in zip(trained.parameters(), later.parameters(), strict=True):
        assert torch.equal(one, other)
        assert not torch.equal(one, one.bfloat16().float()) or one.ndim == 1


def test_weights_that_are_saved_in_full_precision_are_stored_once(policy: Path, file: Path, tmp_path: Path) -> None:
    update(policy, file, tmp_path / "p1", precision="bf16")
    update(tmp_path / "p1", file, tmp_path / "p2")
    assert list((tmp_path / "p1" / "trainer").glob("master-*"))
    assert not list((tmp_path / "p2" / "trainer").glob("master-*"))


def test_a_fresh_optimiser_stays_at_its_place_in_the_run(policy: Path, file: Path, tmp_path: Path) -> None:
    first = Trainer.open(policy, UpdateConfig(**BASE), 4)
    first.step_file(file)
    first.save(tmp_path / "p1")
    fresh = Trainer.open(tmp_path / "p1", UpdateConfig(**BASE, fresh_optimizer=True, schedule="linear"))
    assert (fresh.step, fresh.total_steps, fresh.learner.steps, len(fresh.learner.optimizer.state)) == (1, 4, 1, 0)
    assert fresh.step_file(file).rows[0]["learning_rate"] == pytest.approx(0.75e-2)  # step 1 of 0 to 3
    fresh.save(tmp_path / "p2")
    manifest = read_manifest(tmp_path / "p2")
    assert manifest is not None
    assert (manifest.step, manifest.optimizer_steps, manifest.total_steps) == (2, 2, 4)


def test_a_fresh_optimiser_does_not_hide_how_old_the_dialogues_are(policy: Path, file: Path, tmp_path: Path) -> None:
    update(policy, file, tmp_path / "p1")
    old = write_advantages(tmp_path / "old.parquet", [{**row, "policy_step": 0} for row in random_rows(2)])
    trainer = Trainer.open(tmp_path / "p1", UpdateConfig(**BASE, fresh_optimizer=True, max_lag=0))
    with pytest.raises(InputError, match=r"sampled at policy step 0, 1 steps before this policy"):
        trainer.step_file(old)


@pytest.mark.parametrize("fresh", [False, True])
def test_an_adapter_is_continued_at_its_own_scale_only(fresh: bool, policy: Path, file: Path, tmp_path: Path) -> None:
    pytest.importorskip("peft")
    update(policy, file, tmp_path / "p1", lora_rank=4, lora_alpha=8)
    with pytest.raises(InputError, match=r"trained with lora_alpha 8\.0, now given is 16: .*another policy"):
        Trainer.open(tmp_path / "p1", UpdateConfig(**BASE, lora_rank=4, lora_alpha=16, fresh_optimizer=fresh))
    assert Trainer.open(tmp_path / "p1", UpdateConfig(**BASE, lora_rank=4, lora_alpha=8, fresh_optimizer=fresh))


def gpt2(path: Path) -> Path:
    torch.manual_seed(0)
    shape = {"vocab_size": VOCABULARY, "n_positions": 64, "n_embd": 16, "n_layer": 2, "n_head": 2}
    GPT2LMHeadModel(GPT2Config(**shape, bos_token_id=0, eos_token_id=0)).save_pretrained(path)
    (path / "tokenizer.json").write_text("{}", encoding="utf-8")
    return path


def test_a_family_with_other_names_for_its_sizes_is_estimated(tmp_path: Path) -> None:
    policy = gpt2(tmp_path / "gpt2")
    shape = memory.shape_of_policy(policy)
    assert (shape.hidden_size, shape.layers, shape.intermediate_size, shape.vocabulary) == (16, 2, 64, VOCABULARY)
    assert shape == ModelShape.of(GPT2LMHeadModel.from_pretrained(policy).config)


def test_a_family_whose_memory_is_not_known_is_trained_and_that_is_said(
    policy: Path, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(memory._NAMES, "hidden_size", ("breadth",))
    assert memory_lines(UpdateConfig(), policy) == [
        "memory of the update: not estimated (the model's configuration has no 'hidden_size')"
    ]
    trainer = Trainer.open(policy, UpdateConfig(**BASE))
    metrics = trainer.step_file(file)
    assert metrics.rows
    assert any(
        "Memory was not estimated (the model's configuration has no 'hidden_size')" in w for w in metrics.warnings
    )
    asked = Trainer.open(policy, UpdateConfig(**BASE, gradient_checkpointing="on"))
    assert asked.learner.checkpointed
    assert not any("Memory" in warning for warning in asked.step_file(file).warnings)


@pytest.mark.parametrize("size", [None, 0, "wide"])
def test_a_size_that_is_none_is_no_size(size: object) -> None:
    with pytest.raises(UnknownShapeError, match="no 'num_hidden_layers'"):
        ModelShape.of({"hidden_size": 4, "num_hidden_layers": size, "num_attention_heads": 1, "vocab_size": 3})


def test_gpt2_is_trained(file: Path, tmp_path: Path) -> None:
    trainer = update(gpt2(tmp_path / "gpt2"), file, tmp_path / "p1")
    assert trainer.step == 1
