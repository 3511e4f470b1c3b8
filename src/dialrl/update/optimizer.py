"""AdamW over a model's parameters, and its state as named tensors that can be stored and put back bit for bit."""

from collections.abc import Mapping
from typing import Any

import torch

from dialrl.errors import InputError
from dialrl.update.config import UpdateConfig

MOMENTS = ("exp_avg", "exp_avg_sq")


def build_optimizer(model: Any, config: UpdateConfig) -> torch.optim.AdamW:
    """AdamW (fused); weight decay on matrices only, not on norms and biases."""
    parameters = trainable_parameters(model)
    matrices = [parameter for parameter in parameters.values() if parameter.ndim >= 2]
    vectors = [parameter for parameter in parameters.values() if parameter.ndim < 2]
    groups = [
        {"params": matrices, "weight_decay": config.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=config.learning_rate,
        betas=(config.beta1, config.beta2),
        eps=config.epsilon,
        fused=True,
    )


def trainable_parameters(model: Any) -> dict[str, torch.Tensor]:
    """Parameters by name; tied ones stand once."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def set_learning_rate(optimizer: torch.optim.AdamW, value: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = value


def moments_of(optimizer: torch.optim.AdamW, model: Any) -> dict[str, torch.Tensor]:
    """Both moments of every parameter as ``exp_avg.NAME`` and ``exp_avg_sq.NAME``; empty before the first step."""
    tensors: dict[str, torch.Tensor] = {}
    for name, parameter in trainable_parameters(model).items():
        state = optimizer.state.get(parameter) or {}
        tensors |= {f"{moment}.{name}": state[moment].detach() for moment in MOMENTS if moment in state}
    return tensors


def restore_moments(
    optimizer: torch.optim.AdamW, model: Any, tensors: Mapping[str, torch.Tensor], steps: int, *, where: str
) -> None:
    """Put stored moments back; ``steps`` is the number of optimiser steps they have seen.

    Raises InputError when they belong to another architecture.
    """
    if not tensors:
        return
    parameters = trainable_parameters(model)
    expected = {f"{moment}.{name}" for name in parameters for moment in MOMENTS}
    if set(tensors) != expected:
        first = sorted(set(tensors) ^ expected)[0]
        raise InputError(f"{where} belongs to another architecture: '{first}' is on one side only. {_REMEDY}")
    for name, parameter in parameters.items():
        state: dict[str, torch.Tensor] = {"step": torch.tensor(float(steps), device=parameter.device)}
        for moment in MOMENTS:
            stored = tensors[f"{moment}.{name}"]
            if stored.shape != parameter.shape:
                raise InputError(
                    f"{where}, '{moment}.{name}' has shape {tuple(stored.shape)}; the policy's parameter has"
                    f" {tuple(parameter.shape)}. {_REMEDY}"
                )
            state[moment] = stored.to(device=parameter.device, dtype=parameter.dtype).clone()
        optimizer.state[parameter] = state


_REMEDY = "Use --fresh-optimizer to train this policy without its stored state."
