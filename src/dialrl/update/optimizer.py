"""AdamW over a model's parameters, and its state as named tensors that can be stored and put back bit for bit."""

from collections.abc import Mapping
from typing import Any

import torch

from dialrl.errors import InputError
from dialrl.model.distributed import placed_like
from dialrl.model.stored_tensors import StoredTensor
from dialrl.update.config import UpdateConfig

STATE = ("exp_avg", "exp_avg_sq", "step")


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
    """AdamW's state of every parameter that has one, as ``exp_avg.NAME``, ``exp_avg_sq.NAME`` and ``step.NAME``.

    Of sharded parameters in the same shards.
    """
    tensors: dict[str, torch.Tensor] = {}
    for name, parameter in trainable_parameters(model).items():
        state = optimizer.state.get(parameter) or {}
        tensors |= {f"{entry}.{name}": state[entry].detach() for entry in STATE if entry in state}
    return tensors


def restore_moments(
    optimizer: torch.optim.AdamW, model: Any, tensors: Mapping[str, StoredTensor], *, where: str
) -> None:
    """Put a stored state back; a parameter that never had a gradient has none.

    Raises InputError when it belongs to another architecture.
    """
    parameters = trainable_parameters(model)
    unknown = {name.split(".", 1)[1] for name in tensors} - set(parameters)
    if unknown:
        raise InputError(f"{where} holds '{min(unknown)}', which the policy does not have. {_REMEDY}")
    for name, parameter in parameters.items():
        stored = {entry: tensors[f"{entry}.{name}"] for entry in STATE if f"{entry}.{name}" in tensors}
        if stored:
            optimizer.state[parameter] = _placed(stored, name, parameter, where)


def _placed(
    stored: Mapping[str, StoredTensor], name: str, parameter: torch.Tensor, where: str
) -> dict[str, torch.Tensor]:
    for entry in STATE:
        shape = () if entry == "step" else tuple(parameter.shape)
        found = stored[entry].shape if entry in stored else "no value"
        if found != shape:
            raise InputError(f"{where}, '{entry}.{name}': got {found}, the policy's has shape {shape}. {_REMEDY}")
    placed = {"step": stored["step"].read().to(parameter.device, torch.float32).clone()}
    for entry in STATE:
        if entry != "step":
            placed[entry] = placed_like(parameter, stored[entry]).to(parameter.dtype).clone()
    return placed


_REMEDY = "Use --fresh-optimizer to train this policy without its stored state."
