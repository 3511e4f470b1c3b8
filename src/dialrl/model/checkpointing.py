"""Recomputes a decoder's activations layer by layer in the backward pass, also in evaluation mode.

transformers' own switch works in training mode only, which would turn dropout on. The arithmetic is the same twice, so
on a CPU the gradients are equal bit for bit. Not here: when to do so.
"""

from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from dialrl.errors import UsageError


def checkpoint_layers(model: Any) -> None:
    """Keep only the inputs of ``model``'s layers in forward passes. Raises UsageError when it has no ``layers``."""
    layers = getattr(model.get_decoder(), "layers", None)
    if layers is None:
        raise UsageError(
            f"{type(model).__name__} has no list of layers to recompute; use --gradient-checkpointing off and fewer"
            " micro_batch_tokens."
        )
    for layer in layers:
        layer.forward = partial(checkpoint, layer.forward, use_reentrant=False, preserve_rng_state=False)


def free_memory_bytes(device: torch.device) -> int | None:
    """Free memory of a device; None where it is not known."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    information = Path("/proc/meminfo")
    if not information.is_file():
        return None
    fields = dict(line.split(":", 1) for line in information.read_text(encoding="utf-8").splitlines())
    return int(fields["MemAvailable"].split()[0]) * 1024 if "MemAvailable" in fields else None
