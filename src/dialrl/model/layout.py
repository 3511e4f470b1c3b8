"""Which layout a model is trained in: sequences concatenated without padding, or padded rows of similar length.

Measured on a CPU (``benchmarks/update.py``): concatenated, with attention one segment at a time, is the fastest layout
at every size from 1M parameters on; a block mask over the concatenation took up to ten times as long; below 1M
parameters padded rows of similar length are equally fast. A model is only concatenated when a probe finds that it then
gives what it gives padded. Not here: the layouts themselves (``packing``), the attention (``segment_attention``).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from dialrl.errors import UsageError
from dialrl.model.logprobs import hidden_at_trained
from dialrl.model.packing import (
    SequenceBatch,
    TokenSequence,
    concatenate_sequences,
    pad_sequences,
    plan_batches,
    plan_bins,
)
from dialrl.model.segment_attention import (
    AttentionName,
    attention_words,
    check_attention,
    use_segment_attention,
)

LayoutName = Literal["auto", "packed", "padded"]
PROBE_TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-3, torch.bfloat16: 5e-2}
_TINY_PARAMETERS = 1_000_000
_PROBE_LENGTHS = (5, 40, 2)  # one long enough to show a window that the configuration does not name


@dataclass(frozen=True)
class Layout:
    """``batch`` makes a model input of sequences, ``plan`` deals lengths to batches within a token budget.

    ``sentence`` says what was chosen and why.
    """

    name: Literal["packed", "padded"]
    batch: Callable[[Sequence[TokenSequence], torch.device | str], SequenceBatch]
    plan: Callable[[Sequence[int], int], list[list[int]]]
    sentence: str


def prepare_layout(
    model: Any, wanted: LayoutName = "auto", attention: AttentionName = "auto", device: torch.device | None = None
) -> Layout:
    """The layout for ``model``; for the packed one its attention is switched, in place, to the way ``attention``.

    ``device``: where it will be trained, if not where it is. Raises UsageError when ``wanted`` is packed and the model
    gives something else then, or when the device does not have that way of attending.
    """
    if wanted == "padded":
        return _padded("asked for")
    device = model.device if device is None else device
    check_attention(attention, device)
    if wanted == "auto" and attention == "auto" and _is_tiny(model, device):
        return _padded("the model is tiny, where packing gains nothing on a CPU")
    before = model.config._attn_implementation
    difference, reason = float("inf"), "not every layer attends to all that came before"
    if _attends_to_everything(model.config.get_text_config()):
        difference, reason = _probe(model, attention)
    if difference <= PROBE_TOLERANCE.get(next(model.parameters()).dtype, 5e-2):
        return Layout(
            "packed", concatenate_sequences, plan_bins, f"packed without padding, {_how(model, attention, device)}"
        )
    model.set_attn_implementation(before)
    if wanted == "packed" or attention != "auto":
        raise UsageError(f"{type(model).__name__} cannot be trained packed ({reason}). Use layout padded or auto.")
    return _padded(f"{type(model).__name__} gives other results when packed: {reason}")


def _padded(reason: str) -> Layout:
    return Layout("padded", pad_sequences, plan_batches, f"padded rows of similar length ({reason})")


def _is_tiny(model: Any, device: torch.device) -> bool:
    return bool(device.type == "cpu" and model.num_parameters() < _TINY_PARAMETERS)


def _how(model: Any, attention: AttentionName, device: torch.device) -> str:
    """In words; where bfloat16 attends in another way than the weights' own type, both."""
    own = next(model.parameters()).dtype
    plain, half = (
        attention_words(attention, torch.empty(0, dtype=kind, device=device)) for kind in (own, torch.bfloat16)
    )
    return plain if plain == half else f"{half} in bfloat16, {plain} in {str(own).removeprefix('torch.')}"


def _attends_to_everything(config: Any) -> bool:
    kinds = getattr(config, "layer_types", None)
    if kinds is not None:
        return set(kinds) == {"full_attention"}
    return getattr(config, "sliding_window", None) is None or getattr(config, "use_sliding_window", True) is False


def _probe(model: Any, attention: AttentionName) -> tuple[float, str]:
    try:
        difference = _difference_when_packed(model, attention)
    except (ValueError, TypeError, RuntimeError) as error:
        return float("inf"), str(error)
    return difference, f"hidden states differ by {difference:.2g}"


def _difference_when_packed(model: Any, attention: AttentionName) -> float:
    """Largest difference of hidden states, packed and padded, relative to their size; switches the attention."""
    random, size = np.random.default_rng(0), model.get_input_embeddings().weight.shape[0]
    places = getattr(model.config.get_text_config(), "max_position_embeddings", None) or max(_PROBE_LENGTHS)
    lengths = [min(length, places) for length in _PROBE_LENGTHS]
    sequences = [TokenSequence(random.integers(0, size, n), np.arange(1, n)) for n in lengths]
    with torch.no_grad():
        expected = hidden_at_trained(model, pad_sequences(sequences, model.device))
        use_segment_attention(model, attention)
        found = hidden_at_trained(model, concatenate_sequences(sequences, model.device))
    return float((found - expected).abs().max() / expected.abs().max().clamp(min=1.0))
