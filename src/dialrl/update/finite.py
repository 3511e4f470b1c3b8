"""Weights are looked at before they are saved: a step can be made of finite numbers and still end outside them."""

from collections.abc import Iterable

import torch

from dialrl.errors import NumericalError
from dialrl.model.distributed import Processes, own_rows, summed


def check_finite(tensors: Iterable[tuple[str, torch.Tensor]], group: Processes, *, rounded: bool, step: int) -> None:
    """Raise NumericalError, in every process of ``group``, when one of the weights is not finite as it will be written.

    ``rounded``: they are written in bfloat16, whose largest number is a little smaller. ``step``: the last one made.
    """
    largest = torch.finfo(torch.bfloat16 if rounded else torch.float32).max
    wrong = [name for name, tensor in tensors if not _is_within(own_rows(tensor.detach())[0], largest)]
    if summed([float(len(wrong))], group)[0]:
        first = f" (first of {len(wrong)}: '{wrong[0]}')" if wrong else " (in another process)"
        raise NumericalError(
            f"Weights are not finite after optimiser step {step}{first}, so nothing was saved. Lower learning_rate or"
            " weight_decay, or raise epsilon, and run the update again."
        )


def _is_within(tensor: torch.Tensor, largest: float) -> bool:
    return not tensor.numel() or bool((tensor.abs() <= largest).all())  # false for NaN too
