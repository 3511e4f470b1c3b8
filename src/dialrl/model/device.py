"""Devices by name, checked before anything is put on them."""

import torch

from dialrl.errors import UsageError


def checked_device(name: str) -> str:
    """``name``, if this machine has such a device. Raises UsageError, with what to write, when it has not."""
    try:
        device = torch.device(name)
    except (RuntimeError, ValueError):
        raise UsageError(f"device is '{name}'; expected cpu, cuda or cuda:N.") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UsageError(f"device is '{name}', but no CUDA device is available. Use cpu or auto.")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UsageError(f"device is '{name}', but there are {torch.cuda.device_count()} CUDA devices, from cuda:0 on.")
    if device.type != "cpu" and not _is_there(device):
        raise UsageError(
            f"device is '{name}', which this machine or this build of torch does not have. Use cpu or cuda."
        )
    return name


def _is_there(device: torch.device) -> bool:
    """Whether torch has this kind of accelerator here; ``meta`` and the like are none."""
    accelerator = torch.accelerator.current_accelerator()
    return accelerator is not None and accelerator.type == device.type
