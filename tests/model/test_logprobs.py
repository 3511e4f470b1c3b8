"""Log-probs at trained places equal those of a plain forward pass, in any layout and any chunking."""

from typing import Any

import numpy as np
import pytest
import torch
from tests.update.worlds import VOCABULARY, tiny_model

from dialrl.errors import UsageError
from dialrl.model import fused_head, logprobs
from dialrl.model.logprobs import (
    HeadSettings,
    check_head,
    default_chunk_tokens,
    entropy_of,
    head_logprobs,
    token_logprobs,
)
from dialrl.model.packing import TokenSequence, pad_sequences

SEQUENCES = [
    TokenSequence(np.array([1, 2, 3, 4, 5, 6, 7, 8]), np.array([2, 3, 6, 7])),
    TokenSequence(np.array([5, 9, 9]), np.array([1, 2])),
    TokenSequence(np.array([3, 1, 4, 1, 5]), np.array([4])),
]


def plain(model: Any, temperature: float = 1.0) -> torch.Tensor:
    """Log-probs of all trained tokens, one unpadded sequence at a time through the model's own forward."""
    parts = []
    for sequence in SEQUENCES:
        table = (model(torch.from_numpy(sequence.ids_T)[None]).logits[0] / temperature).log_softmax(-1)
        parts += [table[place - 1, sequence.ids_T[place]] for place in sequence.trained_places]
    return torch.stack(parts)


@pytest.mark.parametrize("kind", ["qwen3", "llama"])
@pytest.mark.parametrize("chunk", [1, 3, None])
def test_padded_and_chunked_log_probs_equal_a_plain_forward(kind: str, chunk: int | None) -> None:
    model = tiny_model(kind, dtype=torch.float64)
    result = token_logprobs(model, pad_sequences(SEQUENCES), HeadSettings(chunk_tokens=chunk))
    torch.testing.assert_close(result.logprobs_T, plain(model), rtol=0, atol=1e-13)


def test_logits_are_divided_by_the_temperature() -> None:
    model = tiny_model(dtype=torch.float64)
    result = token_logprobs(model, pad_sequences(SEQUENCES), HeadSettings(temperature=0.7))
    torch.testing.assert_close(result.logprobs_T, plain(model, 0.7), rtol=0, atol=1e-13)


def test_gradients_do_not_depend_on_chunks() -> None:
    gradients = []
    for chunk in (None, 1, 2):
        model = tiny_model(dtype=torch.float64)
        settings = HeadSettings(chunk_tokens=chunk, entropy_gradient=True)
        result = token_logprobs(model, pad_sequences(SEQUENCES), settings)
        (result.logprobs_T.sum() + result.entropy_T.sum()).backward()
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    for other in gradients[1:]:
        assert (other - gradients[0]).norm() <= 1e-10 * gradients[0].norm()


@pytest.mark.parametrize("chunk", [4, 100])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_large_vocabularies_take_a_shorter_way_to_the_same_numbers(
    temperature: float, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fused_head, "_CACHE_BYTES", 3 * 50 * 8)  # three rows at a time
    torch.manual_seed(0)
    head = torch.nn.Linear(4, 50, bias=False).double()
    targets, weights = torch.randint(0, 50, (9,)), torch.randn(9, dtype=torch.float64)
    found = []
    for limit in (1, 1000):
        monkeypatch.setattr(logprobs, "LARGE_VOCABULARY", limit)
        hidden = (10 * torch.arange(36.0, dtype=torch.float64).sin().reshape(9, 4)).requires_grad_()
        head.zero_grad()
        result = head_logprobs(head, hidden, targets, HeadSettings(temperature, chunk_tokens=chunk))
        (result.logprobs_T * weights).sum().backward()
        found.append((result.logprobs_T, result.entropy_T, hidden.grad, head.weight.grad.clone()))
    for short, plain_way in zip(*found, strict=True):
        torch.testing.assert_close(short, plain_way, rtol=1e-11, atol=1e-12)


def test_a_second_backward_pass_gives_the_same_gradients_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logprobs, "LARGE_VOCABULARY", 1)
    head, hidden = torch.nn.Linear(4, 50, bias=False), torch.randn(6, 4, requires_grad=True)
    result = head_logprobs(head, hidden, torch.arange(6), HeadSettings())
    first, second = (
        torch.autograd.grad(result.logprobs_T.sum(), [hidden, head.weight], retain_graph=True) for _ in range(2)
    )
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))


def test_a_frozen_head_gets_no_gradient_and_passes_it_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logprobs, "LARGE_VOCABULARY", 1)
    head, hidden = torch.nn.Linear(4, 50, bias=False).requires_grad_(False), torch.randn(6, 4, requires_grad=True)
    head_logprobs(head, hidden, torch.arange(6), HeadSettings()).logprobs_T.sum().backward()
    assert head.weight.grad is None
    assert hidden.grad is not None
    assert hidden.grad.abs().sum() > 0


@pytest.mark.parametrize("chunk", [2, 100])
def test_under_autocast_products_are_in_bfloat16_and_the_rest_is_not(
    chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    head, hidden, targets = torch.nn.Linear(8, 50, bias=False), torch.randn(6, 8), torch.arange(6)
    found = []
    for limit in (1, 1000):
        monkeypatch.setattr(logprobs, "LARGE_VOCABULARY", limit)
        head.zero_grad()
        inputs = hidden.clone().requires_grad_()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            result = head_logprobs(head, inputs, targets, HeadSettings(chunk_tokens=chunk))
        result.logprobs_T.sum().backward()
        found.append((result.logprobs_T, result.entropy_T, inputs.grad, head.weight.grad))
    for short, plain_way in zip(*found, strict=True):
        assert short.dtype == plain_way.dtype == torch.float32
        torch.testing.assert_close(short, plain_way, rtol=2e-2, atol=2e-2)


def test_a_logit_of_minus_infinity_has_no_part_in_the_entropy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logprobs, "LARGE_VOCABULARY", 1)
    head = torch.nn.Linear(1, 3, bias=False)
    with torch.no_grad():
        head.weight.copy_(torch.tensor([[0.0], [0.0], [-torch.inf]]))
    result = head_logprobs(head, torch.ones(1, 1), torch.tensor([0]), HeadSettings())
    assert result.entropy_T.item() == pytest.approx(np.log(2))
    assert result.logprobs_T.item() == pytest.approx(-np.log(2))


def test_the_head_sees_trained_places_only_and_never_more_than_a_chunk() -> None:
    model = tiny_model()
    seen: list[int] = []
    model.get_output_embeddings().register_forward_pre_hook(lambda _, given: seen.append(given[0].shape[0]))
    token_logprobs(model, pad_sequences(SEQUENCES), HeadSettings(chunk_tokens=3))
    assert seen == [3, 3, 1]


def test_entropy_of_a_known_distribution() -> None:
    uniform = torch.full((1, 4), 0.25).log()
    certain = torch.tensor([[0.0, -torch.inf]])
    assert entropy_of(uniform).item() == pytest.approx(np.log(4))
    assert entropy_of(certain).item() == 0.0


def test_entropy_is_measured_without_gradient_unless_it_is_in_the_loss() -> None:
    head = torch.nn.Linear(4, VOCABULARY, bias=False)
    hidden, targets = torch.randn(3, 4), torch.tensor([0, 1, 2])
    assert not head_logprobs(head, hidden, targets, HeadSettings()).entropy_T.requires_grad
    assert head_logprobs(head, hidden, targets, HeadSettings(entropy_gradient=True)).entropy_T.requires_grad


def test_half_precision_logits_are_normalised_in_float32() -> None:
    head = torch.nn.Linear(4, VOCABULARY, bias=False).bfloat16()
    result = head_logprobs(head, torch.randn(3, 4).bfloat16(), torch.tensor([0, 1, 2]), HeadSettings())
    assert result.logprobs_T.dtype == torch.float32


def test_a_chunk_of_a_large_vocabulary_stays_within_256_megabytes() -> None:
    assert default_chunk_tokens(248_320) == 270  # field case 20: 11,600 tokens at once would take 11.5 GB


def test_a_model_that_changes_its_logits_after_the_head_is_refused() -> None:
    model = tiny_model()
    check_head(model)
    own = model.forward

    def capped(*args: Any, **kwargs: Any) -> Any:
        output = own(*args, **kwargs)
        output.logits = torch.tanh(output.logits / 0.5) * 0.5
        return output

    model.forward = capped
    with pytest.raises(UsageError, match="changes its logits after the head"):
        check_head(model)
