"""How many CPU threads a model is worth: a tiny one runs faster, and bit for bit the same everywhere, on one."""

from typing import Any

_WORTH_ONE_THREAD_PARAMETERS = 3_000_000


def fit_threads(model: Any) -> int:
    """Set this process's torch threads to 1 when ``model`` lies on the CPU and is tiny; the number in force.

    On a model of 0.4M parameters two threads took longer than one: a step's matrices are too small to share.
    """
    import torch

    if model.device.type == "cpu" and model.num_parameters() < _WORTH_ONE_THREAD_PARAMETERS:
        torch.set_num_threads(1)
    return int(torch.get_num_threads())
