"""How much memory an update will take, part by part, from the options and the model's shape; no framework is loaded.

An estimate for decoders of the usual kind (attention with rotary positions, a gated feed-forward block), counted by
what backward passes keep. ``--dry-run`` prints it, and gradient checkpointing is decided by it. Not here: measuring.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dialrl.errors import InputError
from dialrl.json_file import read_object
from dialrl.update.config import UpdateConfig

FLOAT, HALF = 4, 2
# The head of a large vocabulary: one table of logits, of all trained tokens if they fit, else of a block of them. With
# an entropy bonus, or a small vocabulary: chunks of four tables (logits, log-softmax, its gradient, the entropy's).
_HEAD_TABLE_BYTES, _HEAD_BLOCK_BYTES, _LARGE_VOCABULARY = 2**29, 2**28, 1024
_HEAD_CHUNK_BYTES, _HEAD_TABLES = 2**28, 4
_SHARE_OF_FREE_MEMORY = 0.85


_NAMES = {
    "hidden_size": ("hidden_size", "n_embd", "d_model", "dim"),
    "num_hidden_layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "num_attention_heads": ("num_attention_heads", "n_head", "n_heads", "num_heads"),
    "vocab_size": ("vocab_size",),
    "intermediate_size": ("intermediate_size", "n_inner", "ffn_dim", "d_ff"),
}
"""What families of models call the same size."""


class UnknownShapeError(InputError):
    """A model whose memory cannot be estimated; it can still be trained."""


@dataclass(frozen=True)
class ModelShape:
    """What the estimate needs to know of a model.

    ``query_size`` and ``key_value_size``: heads x size of a head, width of the queries, of the keys and of the values
    of one layer. Queries may be wider than the hidden states.
    """

    parameters: int
    layers: int
    hidden_size: int
    intermediate_size: int
    query_size: int
    key_value_size: int
    vocabulary: int

    @classmethod
    def of(cls, config: Any) -> "ModelShape":
        """The shape in a transformers configuration, as object or as mapping; parameters are counted from it.

        Raises UnknownShapeError for one of a kind that is not known.
        """
        values = config if isinstance(config, dict) else config.to_dict()
        values = values.get("text_config") or values
        hidden, layers, vocabulary, heads = (
            _known(values, name) for name in ("hidden_size", "num_hidden_layers", "vocab_size", "num_attention_heads")
        )
        head_size = values.get("head_dim") or hidden // heads
        query = heads * head_size
        key_value = (values.get("num_key_value_heads") or heads) * head_size
        inner = next((values[name] for name in _NAMES["intermediate_size"] if values.get(name)), 4 * hidden)
        layer = 2 * hidden * query + 2 * hidden * key_value + 3 * hidden * inner + 2 * hidden
        tables = vocabulary * hidden * (1 if values.get("tie_word_embeddings") else 2)
        return cls(layers * layer + tables + hidden, layers, hidden, inner, query, key_value, vocabulary)


def _known(values: Mapping[str, Any], name: str) -> int:
    """A size of the model, under whichever name its family gives it. Raises UnknownShapeError."""
    found = next((values[one] for one in _NAMES[name] if values.get(one)), None)
    if not isinstance(found, int) or found < 1:
        raise UnknownShapeError(f"the model's configuration has no '{name}'")
    return found


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes of each part. ``activations`` are those of one forward pass, ``head`` those of one chunk of it.

    ``merged``: with an adapter, the whole weights that are put together to be saved.
    """

    weights: int
    gradients: int
    optimizer: int
    activations: int
    head: int
    reference: int = 0
    merged: int = 0

    @property
    def total(self) -> int:
        return sum(asdict(self).values())

    def sentence(self) -> str:
        """The parts in GB, for people."""
        parts = ", ".join(f"{name} {size / 1e9:.2f}" for name, size in asdict(self).items() if size)
        return f"about {self.total / 1e9:.2f} GB a process: {parts}"


def estimate_memory(
    config: UpdateConfig, shape: ModelShape, *, checkpointing: bool = False, processes: int = 1
) -> MemoryEstimate:
    """Memory of one process of an update with full forward passes (``micro_batch_tokens``).

    Weights in float32 (and their bfloat16 copies), gradients and two moments of what is trained; activations of every
    layer, or with ``checkpointing`` the input of every layer, and of one layer all it keeps and as much for its
    gradients; the head is done by then, so the larger of the two counts. ``processes``: weights, gradients and
    optimiser are sharded over so many.

    Example, 1e9 parameters, full fine-tuning in fp32: weights 4 GB, gradients 4 GB, optimiser 8 GB.
    """
    trained = shape.parameters if config.lora_rank is None else _lora_parameters(config.lora_rank, shape)
    number = HALF if config.precision == "bf16" else FLOAT
    copies = HALF if config.precision == "bf16" else 0
    tokens = config.micro_batch_tokens
    of_layer = tokens * _kept_of_layer(shape, number)
    inputs = tokens * shape.layers * shape.hidden_size * FLOAT
    head = _head_bytes(config, shape)
    return MemoryEstimate(
        weights=shape.parameters * FLOAT // processes + shape.parameters * copies,
        gradients=trained * FLOAT // processes,
        optimizer=2 * trained * FLOAT // processes,
        activations=inputs + max(0, 2 * of_layer - head) if checkpointing else shape.layers * of_layer,
        head=head,
        reference=shape.parameters * FLOAT if config.uses_reference else 0,
        merged=0 if config.lora_rank is None else shape.parameters * FLOAT,
    )


def _head_bytes(config: UpdateConfig, shape: ModelShape) -> int:
    """Tables of logits that live at once, and the gradient of the head before it joins that of a tied input table."""
    tokens, row = config.micro_batch_tokens, shape.vocabulary * FLOAT
    if config.entropy_bonus > 0 or shape.vocabulary < _LARGE_VOCABULARY:
        return min(config.head_chunk_tokens or max(1, _HEAD_CHUNK_BYTES // row), tokens) * row * _HEAD_TABLES
    chunk = config.head_chunk_tokens or max(1, _HEAD_TABLE_BYTES // row)
    kept = tokens if tokens <= chunk else min(chunk, max(1, _HEAD_BLOCK_BYTES // row))
    return kept * row + (0 if config.lora_rank else row * shape.hidden_size)


def _kept_of_layer(shape: ModelShape, number: int) -> int:
    """Bytes a token that one layer keeps for its backward pass: norms and residuals in float32, the rest in ``number``.

    Two norms (input, normalised, scaled), queries, keys and values before and after rotation (queries and keys are
    rotated in float32), the attended values, what is added of them, and gate, activated gate, other half and product
    of the feed-forward block.
    """
    norms = 6 * shape.hidden_size * FLOAT
    attention = (3 * shape.query_size + shape.hidden_size + 4 * shape.key_value_size) * number
    rotated = (shape.query_size + shape.key_value_size) * (FLOAT - number)
    return norms + attention + rotated + 4 * shape.intermediate_size * number


def _lora_parameters(rank: int, shape: ModelShape) -> int:
    attention = 2 * (shape.hidden_size + shape.query_size) + 2 * (shape.hidden_size + shape.key_value_size)
    return shape.layers * rank * (attention + 3 * (shape.hidden_size + shape.intermediate_size))


def wants_checkpointing(config: UpdateConfig, shape: ModelShape, free_bytes: int | None, *, processes: int = 1) -> bool:
    """Whether activations are recomputed: as asked for, or when the estimate exceeds 85 % of the free memory."""
    if config.gradient_checkpointing != "auto":
        return config.gradient_checkpointing == "on"
    needed = estimate_memory(config, shape, processes=processes).total
    return free_bytes is not None and needed > _SHARE_OF_FREE_MEMORY * free_bytes


def shape_of_policy(policy: Path) -> ModelShape:
    """The shape of a policy in a directory. Raises InputError when it has no ``config.json``."""
    for file in (policy / "model" / "config.json", policy / "config.json"):
        if file.is_file():
            return ModelShape.of(read_object(file))
    raise InputError(f"'{policy}' has no config.json; expected a policy directory or one saved by transformers.")


def memory_lines(config: UpdateConfig, policy: Path) -> list[str]:
    """What ``--dry-run`` says about memory, with and without recomputation of activations."""
    try:
        shape = shape_of_policy(policy)
    except UnknownShapeError as error:
        return [f"memory of the update: not estimated ({error})"]
    plain, recomputing = (
        estimate_memory(config, shape, checkpointing=on, processes=config.processes) for on in (False, True)
    )
    return [f"memory of the update: {plain.sentence()}", f"with gradient checkpointing: {recomputing.sentence()}"]
