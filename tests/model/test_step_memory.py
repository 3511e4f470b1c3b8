"""Peak memory of a step at a quarter of a billion parameters and a vocabulary of 262,144, without computing it.

Tensors are fake: they have shapes and bytes, and no numbers, so the step of a large model is counted in seconds.
"""

from dataclasses import dataclass

import pytest
import torch
from tests.model.test_head_memory import LiveBytes
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import Qwen3Config, Qwen3ForCausalLM

from dialrl.model.logprobs import HeadSettings, head_logprobs, hidden_at_trained
from dialrl.model.packing import SequenceBatch
from dialrl.update.config import UpdateConfig
from dialrl.update.memory import ModelShape, estimate_memory

CONFIG = Qwen3Config(
    vocab_size=262_144, hidden_size=640, intermediate_size=2048, num_hidden_layers=18, num_attention_heads=4,
    num_key_value_heads=1, head_dim=256, tie_word_embeddings=True,
)  # fmt: skip


@dataclass(frozen=True)
class Measured:
    """Bytes. ``state``: weights, gradients and moments; ``activations``: kept by the decoder; ``peak``: of all."""

    parameters: int
    state: int
    activations: int
    peak: int

    @property
    def beside_activations(self) -> int:
        return self.peak - self.activations


def step(tokens: int) -> Measured:
    """A second step, when AdamW's moments exist, over one dialogue of ``tokens`` of which half are trained."""
    with FakeTensorMode(), LiveBytes() as memory:
        model = Qwen3ForCausalLM(CONFIG).eval()
        optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
        state = memory.live
        optimizer.zero_grad(set_to_none=True)
        places = torch.zeros(tokens // 2, dtype=torch.long)
        batch = SequenceBatch(torch.zeros(1, tokens, dtype=torch.long), places, places)
        before, memory.peak = memory.live, memory.live
        hidden = hidden_at_trained(model, batch)
        activations = memory.live - before
        result = head_logprobs(model.get_output_embeddings(), hidden, batch.targets_T, HeadSettings())
        result.logprobs_T.sum().backward()
        optimizer.step()
        return Measured(model.num_parameters(), state, activations, memory.peak)


@pytest.mark.full
def test_the_peak_is_what_weights_optimiser_and_activations_take_and_little_more() -> None:
    short, long = step(2048), step(4096)
    assert short.parameters == pytest.approx(0.27e9, rel=0.02)
    assert long.state == pytest.approx(16 * long.parameters, rel=0.01)
    assert long.peak <= 1.3 * (long.state + long.activations)
    assert long.beside_activations <= 1.1 * short.beside_activations
    assert long.beside_activations < long.state  # while the head works, no gradient of the decoder exists yet


def test_the_estimate_is_near() -> None:
    measured = step(1024)
    expected = estimate_memory(UpdateConfig(micro_batch_tokens=1024), ModelShape.of(CONFIG))
    assert expected.weights + expected.gradients + expected.optimizer == pytest.approx(measured.state, rel=0.01)
    assert expected.activations == pytest.approx(measured.activations, rel=0.25)
    assert expected.total == pytest.approx(measured.peak, rel=0.15)
