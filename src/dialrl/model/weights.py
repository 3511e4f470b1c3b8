"""Weights of a stored policy into a model in memory, in place: how an engine follows the policy it samples from."""

from pathlib import Path
from typing import Any

import torch

from dialrl.errors import InputError
from dialrl.model.loading import LoadingSettings, load_model
from dialrl.model.stored_tensors import read_tensors


def copy_weights(model: Any, directory: Path) -> None:
    """Copy all weights in ``directory`` into ``model``, converting to its precision and device.

    Raises InputError, before anything is changed, when names or shapes differ: another architecture.
    """
    own = model.state_dict()
    stored = _stored_weights(model, directory)
    differing = sorted(name for name in own if name not in stored or stored[name].shape != own[name].shape)
    surplus = sorted(set(stored) - set(own))
    if differing or surplus:
        raise InputError(
            f"'{directory}' holds another architecture than the model in memory: {(differing + surplus)[0]} and"
            f" {len(differing) + len(surplus) - 1} more weights differ. Open a new engine for it."
        )
    with torch.no_grad():
        for name, weight in own.items():
            weight.copy_(stored[name])


def _stored_weights(model: Any, directory: Path) -> dict[str, torch.Tensor]:
    """Weights by the model's own names. Files that name them otherwise go through transformers' conversion."""
    stored: dict[str, torch.Tensor] = {}
    for file in sorted(directory.glob("*.safetensors")):
        stored.update(read_tensors(file, remedy="Write the policy again."))
    own = model.state_dict()
    tied = {own[name].data_ptr(): name for name in own if name in stored}
    for name in own:
        if name not in stored and own[name].data_ptr() in tied:
            stored[name] = stored[tied[own[name].data_ptr()]]
    if set(stored) == set(own):
        return stored
    loaded: dict[str, torch.Tensor] = load_model(directory, LoadingSettings()).state_dict()
    return loaded
