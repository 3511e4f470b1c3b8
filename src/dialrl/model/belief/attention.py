"""Attention in a row of belief trees, by its structure: nothing is computed that a mask would hide.

Registered with transformers under ``NAME``; a model is switched to it for one forward. Three ways, one result:
``SplitAttention`` attends causally within each trunk, and from the branches of each cut to the trunk before it and to
themselves; ``FlexAttention`` is torch's kernel with a block mask, compiled on a GPU; ``DenseAttention`` leaves the
model its own attention and gives it a mask of the whole row. Source: docs/stages/judge-information-gain.md. Not here:
the layout (``tree``), the forward.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention

from dialrl.model.belief.tree import TRUNK, BeliefTree, Branches

NAME = "dialrl_belief"
AttentionName = Literal["split", "flex", "dense"]
_CHANGES_SCORES = ("softcap", "s_aux", "sliding_window", "position_bias")


class BeliefAttention(Protocol):
    """How a row of trees is attended to: arguments for the decoder, and the attention, where it is ours."""

    def arguments(self) -> dict[str, Any]:
        """What the decoder is called with beside ids and positions."""
        ...

    def switched(self, model: Any) -> Any:
        """Context in which ``model`` attends this way."""
        ...


def attention_of(name: AttentionName, tree: BeliefTree, device: Any, dtype: torch.dtype) -> BeliefAttention:
    """The attention ``name`` for the row ``tree``."""
    kinds: dict[AttentionName, Callable[[BeliefTree, Any, torch.dtype], BeliefAttention]]
    kinds = {"split": SplitAttention, "flex": FlexAttention, "dense": DenseAttention}
    return kinds[name](tree, device, dtype)


class SplitAttention:
    """One causal attention a trunk; the branches of a cut are queries against its prefix and themselves."""

    def __init__(self, tree: BeliefTree, device: Any, dtype: torch.dtype) -> None:
        self._trunks = tree.trunks()
        self._branches = [(branches, _mask_of(tree, branches, device, dtype)) for branches in tree.branches()]

    def arguments(self) -> dict[str, Any]:
        return {"belief_attention": self}

    def switched(self, model: Any) -> Any:
        return _switched(model)

    def attend(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scaling: float) -> torch.Tensor:
        """(1, heads, N, d) from queries of that shape and keys and values (1, key heads, N, d)."""
        parts = {}
        for start, end in self._trunks:
            parts[start] = _causal(query[:, :, start:end], key[:, :, start:end], value[:, :, start:end], scaling)
        for branches, mask in self._branches:
            parts[branches.start] = _branched(branches, mask, query, key, value, scaling)
        return torch.cat([parts[start] for start in sorted(parts)], dim=2)


def _mask_of(tree: BeliefTree, branches: Branches, device: Any, dtype: torch.dtype) -> torch.Tensor:
    """(M, prefix + M), additive: the whole prefix is seen, of the branches what the tree allows."""
    prefix = np.ones((branches.end - branches.start, branches.cut - branches.first), dtype=np.bool_)
    return additive_mask(np.concatenate([prefix, tree.visible_in(branches)], axis=1), device, dtype)


def _causal(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scaling: float) -> torch.Tensor:
    grouped = query.shape[1] > key.shape[1]
    return scaled_dot_product_attention(query, key, value, is_causal=True, scale=scaling, enable_gqa=grouped)


def _branched(
    branches: Branches,
    mask: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    scaling: float,
) -> torch.Tensor:
    """Queries that share a key head stand as its group, so that no key is copied for them."""
    _, heads, _, width = query.shape
    groups = heads // key.shape[1]
    query_KGMd = query[0, :, branches.start : branches.end].unflatten(0, (-1, groups))
    key_KGLd, value_KGLd = (_seen(states, branches).expand(-1, groups, -1, -1) for states in (key, value))
    out = scaled_dot_product_attention(query_KGMd, key_KGLd, value_KGLd, attn_mask=mask, scale=scaling)
    return out.reshape(1, heads, -1, width)


def _seen(states: torch.Tensor, branches: Branches) -> torch.Tensor:
    """(key heads, 1, prefix + M, d): keys or values of the prefix, then of the branches."""
    prefix, own = states[0, :, branches.first : branches.cut], states[0, :, branches.start : branches.end]
    return torch.cat([prefix, own], dim=1).unsqueeze(1)


class FlexAttention:
    """torch's flexible kernel: blocks of the row that nothing is seen of are passed over. Made for GPUs."""

    def __init__(self, tree: BeliefTree, device: Any, dtype: torch.dtype) -> None:
        from torch.nn.attention.flex_attention import create_block_mask

        columns = (tree.starts_N, tree.cuts_N, tree.nodes_N, tree.parents_N)
        starts_N, cuts_N, nodes_N, parents_N = (torch.from_numpy(column).to(device) for column in columns)

        def sees(_batch: Any, _head: Any, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
            in_trunk = (nodes_N[key] == TRUNK) & (key >= starts_N[query]) & (key < cuts_N[query])
            same_node = (nodes_N[query] == nodes_N[key]) & (nodes_N[key] != TRUNK) & (key <= query)
            return in_trunk | same_node | (parents_N[query] == nodes_N[key])

        self._mask = create_block_mask(sees, None, None, tree.tokens, tree.tokens, device=str(device))

    def arguments(self) -> dict[str, Any]:
        return {"belief_attention": self}

    def switched(self, model: Any) -> Any:
        return _switched(model)

    def attend(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scaling: float) -> torch.Tensor:
        """As that of ``SplitAttention``."""
        grouped = query.shape[1] > key.shape[1]
        kernel = _flex_kernel(compiled=query.device.type == "cuda")
        out: torch.Tensor = kernel(query, key, value, block_mask=self._mask, scale=scaling, enable_gqa=grouped)
        return out


@cache
def _flex_kernel(*, compiled: bool) -> Any:
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention) if compiled else flex_attention


class DenseAttention:
    """A mask (1, 1, N, N) for the model's own attention."""

    def __init__(self, tree: BeliefTree, device: Any, dtype: torch.dtype) -> None:
        self._mask = additive_mask(tree.visible(), device, dtype)[None, None]

    def arguments(self) -> dict[str, Any]:
        return {"attention_mask": self._mask}

    def switched(self, model: Any) -> Any:
        return nullcontext()


def additive_mask(visible: Any, device: Any, dtype: torch.dtype) -> torch.Tensor:
    """Of the shape of ``visible``: 0 where a token may be seen, -inf elsewhere."""
    hidden = torch.from_numpy(~visible).to(device)
    return torch.zeros(hidden.shape, dtype=dtype, device=device).masked_fill_(hidden, float("-inf"))


@contextmanager
def _switched(model: Any) -> Iterator[None]:
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, _attend)
    before = model.config._attn_implementation
    model.set_attn_implementation(NAME)
    try:
        yield
    finally:
        model.set_attn_implementation(before)


def _attend(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    belief_attention: Any = None,
    **more: Any,
) -> tuple[torch.Tensor, None]:
    """What transformers' layers call. Raises ValueError for a model whose attention is more than that."""
    changed = [name for name in _CHANGES_SCORES if more.get(name) is not None]
    if changed or attention_mask is not None or belief_attention is None:
        raise ValueError(f"belief attention: this model's layers ask for more ({', '.join(changed) or 'a mask'})")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    return belief_attention.attend(query, key, value, scale).transpose(1, 2).contiguous(), None
