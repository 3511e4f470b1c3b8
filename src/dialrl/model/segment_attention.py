"""Attention within segments of one concatenated sequence: no padding, nothing computed across segments.

Registered with transformers under ``NAME``. A model switched to it reads the segments' bounds from ``cu_seq_lens_q``
(the argument that flash attention takes) and attends causally inside each, in one of three ways with one result:
``varlen``, torch's variable-length flash kernel; ``flex``, torch's FlexAttention with a block mask, compiled on a GPU;
``sdpa``, one segment at a time. Without bounds it is plain causal attention. Not here: which layout a model is trained
in (``layout``).
"""

from collections.abc import Callable
from functools import cache, partial
from inspect import signature
from typing import Any, Literal

import torch
from torch.nn.functional import scaled_dot_product_attention

from dialrl.errors import UsageError

NAME = "dialrl_segments"
AttentionName = Literal["auto", "sdpa", "flex", "varlen"]
_KERNEL_TYPES = (torch.bfloat16, torch.float16)
_KERNEL_CAPABILITY = (8, 0)
_WORDS = {
    "auto": "attention one segment at a time",
    "sdpa": "attention one segment at a time",
    "flex": "FlexAttention with a block mask",
    "varlen": "variable-length attention kernel",
}


def use_segment_attention(model: Any, wanted: AttentionName = "auto") -> None:
    """Switch ``model`` (in place) to this attention."""
    from transformers import AttentionInterface

    AttentionInterface.register(_name(wanted), partial(segment_attention, wanted=wanted))
    model.set_attn_implementation(_name(wanted))


def _name(wanted: AttentionName) -> str:
    return NAME if wanted == "auto" else f"{NAME}_{wanted}"


def check_attention(wanted: AttentionName, device: torch.device) -> None:
    """Raise UsageError when a way that was asked for cannot train on ``device``."""
    if wanted == "varlen" and not _has_kernel(device):
        raise UsageError(
            f"attention varlen needs a GPU of compute capability {_KERNEL_CAPABILITY[0]}.0 or more and torch 2.11 or"
            f" later; the device is {device}, torch {torch.__version__}. Use attention auto."
        )
    if wanted == "flex" and device.type == "cpu":
        raise UsageError("attention flex has no backward pass on a CPU. Use attention auto or sdpa there.")


def attention_words(wanted: AttentionName, query: torch.Tensor) -> str:
    """How attention runs for tensors like ``query``, for people."""
    return _WORDS[_way(wanted, query)]


def segment_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None = None,
    scaling: float | None = None,
    cu_seq_lens_q: torch.Tensor | None = None,
    max_length_q: int | None = None,
    wanted: AttentionName = "auto",
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Causal attention of ``query`` (B, heads, L, d) over ``key`` and ``value`` (B, key heads, L, d) within segments.

    ``cu_seq_lens_q`` (S+1,): where segments start, and L; B is 1 then. Gives (B, L, heads, d), as transformers expects.
    """
    if attention_mask is not None:
        raise ValueError("segment attention takes no mask; lengths say what belongs together")
    if cu_seq_lens_q is None or max_length_q is None:
        return _causal(query, key, value, scaling=scaling).transpose(1, 2).contiguous(), None
    query, key, value = _as_autocast(query, key, value)
    way = _way(wanted, query)
    if way == "varlen":
        return _by_kernel(query, key, value, scaling, cu_seq_lens_q, max_length_q), None
    if way == "flex":
        return _by_blocks(query, key, value, scaling, cu_seq_lens_q), None
    lengths = cu_seq_lens_q.diff().tolist()
    segments = zip(query.split(lengths, 2), key.split(lengths, 2), value.split(lengths, 2), strict=True)
    return torch.cat([_causal(*one, scaling=scaling).transpose(1, 2) for one in segments], dim=1), None


def _as_autocast(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """In autocast's type: norms of queries and keys leave float32, which the kernel does not take beside the values."""
    device = tensors[0].device.type
    if not torch.is_autocast_enabled(device):
        return tensors
    return tuple(tensor.to(torch.get_autocast_dtype(device)) for tensor in tensors)


def _way(wanted: AttentionName, query: torch.Tensor) -> AttentionName:
    """``auto``: the kernel where device and type have it, else one segment at a time.

    The kernel takes half precision only, so ``varlen`` falls back to ``flex`` for other types (the probe of a layout).
    """
    if wanted in ("sdpa", "flex"):
        return wanted
    if _has_kernel(query.device) and query.dtype in _KERNEL_TYPES:
        return "varlen"
    return "flex" if wanted == "varlen" else "sdpa"


def _causal(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *, scaling: float | None) -> torch.Tensor:
    groups = query.shape[1] // key.shape[1]
    return scaled_dot_product_attention(query, key, value, is_causal=True, scale=scaling, enable_gqa=groups > 1)


@cache
def _has_kernel(device: torch.device) -> bool:
    """Whether torch's variable-length flash attention runs on ``device``."""
    if device.type != "cuda" or torch.cuda.get_device_capability(device) < _KERNEL_CAPABILITY:
        return False
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:  # torch before 2.10
        return False
    return "enable_gqa" in signature(varlen_attn).parameters


def _by_kernel(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    scaling: float | None,
    bounds: torch.Tensor,
    longest: int,
) -> torch.Tensor:
    from torch.nn.attention.varlen import varlen_attn

    query_T, key_T, value_T = (part[0].transpose(0, 1) for part in (query, key, value))
    result: torch.Tensor = varlen_attn(
        query_T.contiguous(),
        key_T.contiguous(),
        value_T.contiguous(),
        bounds,
        bounds,
        longest,
        longest,
        scale=scaling,
        window_size=(-1, 0),  # everything to the left, nothing to the right
        enable_gqa=query.shape[1] > key.shape[1],
    )
    return result.unsqueeze(0)


def _by_blocks(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scaling: float | None, bounds: torch.Tensor
) -> torch.Tensor:
    mask = block_mask(bounds, query.shape[2])
    grouped = query.shape[1] > key.shape[1]
    attend = _flex(query.device.type)
    result: torch.Tensor = attend(query, key, value, block_mask=mask, scale=scaling, enable_gqa=grouped)
    return result.transpose(1, 2).contiguous()


@cache
def _flex(device_type: str) -> Callable[..., torch.Tensor]:
    """FlexAttention, compiled for a GPU; on a CPU as plain tensor operations, which have a forward pass only."""
    from torch.nn.attention.flex_attention import flex_attention

    flex: Callable[..., torch.Tensor] = flex_attention
    return torch.compile(flex, dynamic=True) if device_type == "cuda" else flex


_latest_mask: list[tuple[torch.Tensor, Any]] = []


def block_mask(bounds: torch.Tensor, length: int) -> Any:
    """FlexAttention's mask of segments at ``bounds`` (S+1,): places of one segment, not to the right.

    All layers of a forward pass ask with the same tensor, so the latest mask is kept.
    """
    from torch.nn.attention.flex_attention import create_block_mask

    if _latest_mask and _latest_mask[0][0] is bounds:
        return _latest_mask[0][1]
    places = torch.arange(length, device=bounds.device, dtype=bounds.dtype)
    segment_T = torch.searchsorted(bounds[1:].contiguous(), places, right=True)

    def together(batch: Any, head: Any, asking: torch.Tensor, asked: torch.Tensor) -> torch.Tensor:
        return (segment_T[asking] == segment_T[asked]) & (asking >= asked)

    mask = create_block_mask(together, None, None, length, length, device=bounds.device)
    _latest_mask[:] = [(bounds, mask)]
    return mask
