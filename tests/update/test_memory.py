"""Memory: the estimate's parts by hand and against what a pass keeps; recomputed activations change no bit."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.model.test_head_memory import LiveBytes
from tests.update.test_trainer import BASE, run, same_bits
from tests.update.worlds import random_rows, save_policy, tiny_model, write_advantages
from transformers import Qwen3Config, Qwen3ForCausalLM

from dialrl.model.checkpointing import checkpoint_layers, free_memory_bytes
from dialrl.update.config import UpdateConfig
from dialrl.update.memory import ModelShape, estimate_memory, memory_lines, wants_checkpointing

SHAPE = ModelShape(
    parameters=1_000_000,
    layers=2,
    hidden_size=64,
    intermediate_size=256,
    query_size=64,
    key_value_size=32,
    vocabulary=1000,
)


def test_the_parts_by_hand() -> None:
    parts = estimate_memory(UpdateConfig(micro_batch_tokens=100, head_chunk_tokens=10), SHAPE)
    assert (parts.weights, parts.gradients, parts.optimizer, parts.reference) == (4_000_000, 4_000_000, 8_000_000, 0)
    assert parts.activations == 2 * 100 * 4 * (6 * 64 + 4 * 64 + 4 * 32 + 4 * 256)
    assert parts.head == 10 * 1000 * 4 * 4
    assert parts.total == sum((4_000_000, 4_000_000, 8_000_000, parts.activations, parts.head))
    assert "weights 0.00" in parts.sentence()


def test_an_adapter_needs_no_gradients_of_the_base_and_a_reference_its_weights(tmp_path: Path) -> None:
    parts = estimate_memory(UpdateConfig(lora_rank=2), SHAPE)
    assert parts.gradients == 4 * 2 * 2 * (4 * 64 + 2 * (64 + 32) + 3 * (64 + 256))
    assert estimate_memory(UpdateConfig(kl_coefficient=0.1, reference=tmp_path), SHAPE).reference == 4_000_000


def test_an_adapter_is_merged_into_whole_weights_to_be_saved() -> None:
    assert estimate_memory(UpdateConfig(lora_rank=2), SHAPE).merged == 4_000_000
    assert estimate_memory(UpdateConfig(), SHAPE).merged == 0


def test_queries_wider_than_the_hidden_states_count_by_their_width() -> None:
    config = UpdateConfig(micro_batch_tokens=100)
    wide = replace(SHAPE, query_size=128)
    more = estimate_memory(config, wide).activations - estimate_memory(config, SHAPE).activations
    assert more == 2 * 100 * 4 * 3 * 64  # before and after rotation, and what they attended to
    half = UpdateConfig(micro_batch_tokens=100, precision="bf16")
    more = estimate_memory(half, wide).activations - estimate_memory(half, SHAPE).activations
    assert more == 2 * 100 * (2 * 3 + 2) * 64  # in half the bytes, but one of the three in full
    trained = [estimate_memory(UpdateConfig(lora_rank=2), shape).gradients for shape in (SHAPE, wide)]
    assert trained[1] - trained[0] == 4 * 2 * 2 * 2 * 64


def test_a_recomputed_layer_has_its_gradients_beside_it_once_the_head_is_done() -> None:
    of_layer = 100 * 4 * (6 * 64 + 4 * 64 + 4 * 32 + 4 * 256)
    for chunk, head in ((1, 16_000), (1000, 1_600_000)):
        config = UpdateConfig(micro_batch_tokens=100, head_chunk_tokens=chunk)
        parts = estimate_memory(config, SHAPE, checkpointing=True)
        assert parts.activations + parts.head == 2 * 100 * 4 * 64 + max(2 * of_layer, head)


def test_parameters_are_counted_from_the_configuration() -> None:
    for kind in ("qwen3", "llama"):
        model = tiny_model(kind)
        assert ModelShape.of(model.config).parameters == pytest.approx(model.num_parameters(), rel=0.03)


def test_the_activations_are_what_a_forward_pass_keeps() -> None:
    shape: dict[str, Any] = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
    config = Qwen3Config(**shape, vocab_size=50, intermediate_size=192, num_hidden_layers=4)
    model = Qwen3ForCausalLM(config).eval()
    ids = torch.arange(200).remainder(50).unsqueeze(0)
    with LiveBytes() as memory:
        kept = model.get_decoder()(input_ids=ids, use_cache=False).last_hidden_state
        live = memory.live
    expected = estimate_memory(UpdateConfig(micro_batch_tokens=200), ModelShape.of(config)).activations
    assert kept.requires_grad
    assert 0.7 * live < expected < 1.4 * live
    checkpoint_layers(model)
    with LiveBytes() as memory:
        kept = model.get_decoder()(input_ids=ids, use_cache=False).last_hidden_state
        assert memory.live < 0.35 * live


def test_checkpointing_is_switched_on_when_memory_does_not_suffice() -> None:
    config = UpdateConfig()
    needed = estimate_memory(config, SHAPE).total
    assert not wants_checkpointing(config, SHAPE, 2 * needed)
    assert wants_checkpointing(config, SHAPE, needed)
    assert not wants_checkpointing(config, SHAPE, None)
    assert wants_checkpointing(UpdateConfig(gradient_checkpointing="on"), SHAPE, None)
    assert (free_memory_bytes(torch.device("cpu")) or 1) > 0


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_recomputed_activations_give_the_same_bits(precision: str, tmp_path: Path) -> None:
    policy = save_policy(tmp_path / "p0")
    files = [write_advantages(tmp_path / f"{number}.parquet", random_rows(6, seed=number)) for number in range(2)]
    for name in ("on", "off"):
        config = UpdateConfig(**BASE, precision=precision, gradient_checkpointing=name)  # type: ignore[arg-type]
        run(policy, files, tmp_path / name, config)
    assert same_bits(tmp_path / "on", tmp_path / "off")


def test_a_dry_run_says_it_with_and_without_recomputation(tmp_path: Path) -> None:
    first, second = memory_lines(UpdateConfig(), save_policy(tmp_path / "p0"))
    assert first.startswith("memory of the update: about 0.")
    assert second.startswith("with gradient checkpointing: about 0.")
