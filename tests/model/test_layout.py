"""A model is trained packed when that is the same function, and padded where it is not."""

from typing import Any

import pytest
import torch
from tests.model.test_logprobs import SEQUENCES, plain
from tests.update.worlds import tiny_model
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from dialrl.errors import UsageError
from dialrl.model.layout import prepare_layout
from dialrl.model.logprobs import HeadSettings, check_head, token_logprobs
from dialrl.model.segment_attention import AttentionName


@pytest.mark.parametrize("kind", ["qwen3", "llama"])
def test_packed_log_probs_equal_a_plain_forward(kind: str) -> None:
    model = tiny_model(kind, dtype=torch.float64)
    expected = plain(model).detach()
    layout = prepare_layout(model, "packed")
    batch = layout.batch(SEQUENCES, "cpu")
    assert batch.tokens == sum(sequence.input_length for sequence in SEQUENCES)
    torch.testing.assert_close(token_logprobs(model, batch, HeadSettings()).logprobs_T, expected, rtol=0, atol=1e-13)
    check_head(model)


def test_what_stands_in_one_sequence_moves_nothing_in_another() -> None:
    model = tiny_model()
    layout = prepare_layout(model, "packed")
    embedded = model.get_input_embeddings()
    inputs: list[torch.Tensor] = []
    embedded.register_forward_hook(lambda _, __, output: inputs.append(output) or output.retain_grad())
    result = token_logprobs(model, layout.batch(SEQUENCES, "cpu"), HeadSettings())
    result.logprobs_T[-1].backward()  # the only trained token of the last sequence, 4 read tokens
    gradient = inputs[-1].grad
    assert gradient is not None
    assert not gradient[0, :-4].any()
    assert gradient[0, -4:].any()


def test_a_larger_model_is_packed_by_itself_and_a_tiny_one_padded() -> None:
    shape: dict[str, Any] = {"hidden_size": 128, "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 6000}
    larger = LlamaForCausalLM(LlamaConfig(**shape, intermediate_size=256)).eval()
    assert prepare_layout(larger).sentence == "packed without padding, attention one segment at a time"
    assert prepare_layout(tiny_model()).name == "padded"


SHAPE: dict[str, Any] = {
    "hidden_size": 16, "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 12, "intermediate_size": 24,
    "head_dim": 8,
}  # fmt: skip


def windowed(size: int) -> Any:
    """Random, one layer; every place sees itself and ``size - 1`` before it."""
    torch.manual_seed(0)
    return MistralForCausalLM(MistralConfig(**SHAPE, num_hidden_layers=1, sliding_window=size)).eval()


def one_layer_of_two_windowed(size: int) -> Any:
    kinds = ["full_attention", "sliding_attention"]
    config = Qwen3Config(**SHAPE, num_hidden_layers=2, use_sliding_window=True, sliding_window=size, layer_types=kinds)
    return Qwen3ForCausalLM(config).eval()


@pytest.mark.parametrize("model", [windowed, one_layer_of_two_windowed])
@pytest.mark.parametrize("size", [4, 4096], ids=["short", "longer than what is tried"])
def test_a_model_with_a_sliding_window_stays_padded(model: Any, size: int) -> None:
    made = model(size)
    with pytest.raises(UsageError, match=r"cannot be trained packed .not every layer attends to all that came before"):
        prepare_layout(made, "packed")
    assert made.config._attn_implementation == "sdpa"


def test_a_window_that_is_not_declared_is_seen_by_trying(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dialrl.model.layout._attends_to_everything", lambda _: True)
    model = windowed(8)
    with pytest.raises(UsageError, match=r"cannot be trained packed .hidden states differ by 0\.\d"):
        prepare_layout(model, "packed")
    assert model.config._attn_implementation == "sdpa"


def test_what_is_tried_fits_a_model_of_few_places() -> None:
    few = GPT2LMHeadModel(
        GPT2Config(n_positions=6, n_embd=16, n_layer=1, n_head=2, vocab_size=12, bos_token_id=0, eos_token_id=0)
    ).eval()
    assert prepare_layout(few, "packed").name == "packed"


@pytest.mark.parametrize("attention", ["flex", "varlen"])
def test_a_way_of_attending_that_a_cpu_cannot_train_with_is_refused(attention: AttentionName) -> None:
    with pytest.raises(UsageError, match=f"attention {attention} .*Use attention auto"):
        prepare_layout(tiny_model(), "auto", attention)


def test_attention_that_was_asked_for_packs_even_a_tiny_model() -> None:
    layout = prepare_layout(tiny_model(), "auto", "sdpa")
    assert layout.sentence == "packed without padding, attention one segment at a time"
