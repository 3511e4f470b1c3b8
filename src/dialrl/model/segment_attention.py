"""Attention within segments of one concatenated sequence: no padding, no mask, nothing computed across segments.

Registered with transformers under ``NAME``. A model switched to it reads the segments' bounds from ``cu_seq_lens_q``
(the argument that flash attention takes) and attends causally inside each: by torch's variable-length kernel where the
device has one, else one segment at a time. Without bounds it is plain causal attention. Not here: which layout a model
is trained in (``layout``).
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention

NAME = "dialrl_segments"
_KERNEL_TYPES = (torch.bfloat16, torch.float16)
_KERNEL_CAPABILITY = (8, 0)


def use_segment_attention(model: Any) -> None:
    """Switch ``model`` (in place) to this attention."""
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, segment_attention)
    model.set_attn_implementation(NAME)


def segment_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None = None,
    scaling: float | None = None,
    cu_seq_lens_q: torch.Tensor | None = None,
    max_length_q: int | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Causal attention of ``query`` (B, heads, L, d) over ``key`` and ``value`` (B, key heads, L, d) within segments.

    ``cu_seq_lens_q`` (S+1,): where segments start, and L; B is 1 then. Gives (B, L, heads, d), as transformers expects.
    """
    if attention_mask is not None:
        raise ValueError("segment attention takes no mask; lengths say what belongs together")
    if cu_seq_lens_q is None:
        return _causal(query, key, value, scaling).transpose(1, 2).contiguous(), None
    kernel = variable_length_kernel(query)
    if kernel is not None and max_length_q is not None:
        return _by_kernel(kernel, query, key, value, scaling, cu_seq_lens_q, max_length_q), None
    bounds = cu_seq_lens_q.tolist()
    parts = [
        _causal(query[:, :, start:end], key[:, :, start:end], value[:, :, start:end], scaling)
        for start, end in pairwise(bounds)
    ]
    return torch.cat(parts, dim=2).transpose(1, 2).contiguous(), None


def _causal(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scaling: float | None) -> torch.Tensor:
    groups = query.shape[1] // key.shape[1]
    return scaled_dot_product_attention(query, key, value, is_causal=True, scale=scaling, enable_gqa=groups > 1)


def variable_length_kernel(query: torch.Tensor) -> Callable[..., torch.Tensor] | None:
    """torch's variable-length flash attention, where this tensor's device and type can use it."""
    if query.device.type != "cuda" or query.dtype not in _KERNEL_TYPES:
        return None
    if torch.cuda.get_device_capability(query.device) < _KERNEL_CAPABILITY:
        return None
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:  # torch before 2.10
        return None
    kernel: Callable[..., torch.Tensor] = varlen_attn
    return kernel


def _by_kernel(
    kernel: Callable[..., torch.Tensor],
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    scaling: float | None,
    bounds: torch.Tensor,
    longest: int,
) -> torch.Tensor:
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
    query_T, key_T, value_T = (part[0].transpose(0, 1).contiguous() for part in (query, key, value))
    causal = (-1, 0)  # window: everything to the left, nothing to the right
    return kernel(
        query_T, key_T, value_T, bounds, bounds, longest, longest, scale=scaling, window_size=causal
    ).unsqueeze(0)
