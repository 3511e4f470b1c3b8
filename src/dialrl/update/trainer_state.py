"""What a trainer must remember between two updates, beside the policy's weights: ``trainer/`` of a policy directory.

AdamW's state and, when the weights in ``model/`` are rounded, the master weights, as safetensors shards in full
precision; ``trainer.json`` with step, schedule, seed of the order, cursor. Not here: the weights themselves.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from dialrl.errors import InputError
from dialrl.model.distributed import placed_like, whole
from dialrl.update.config import UpdateConfig
from dialrl.update.policy_directory import read_json

FORMAT_VERSION = 1
SHARD_BYTES = 4 * 2**30
_FILE = "trainer.json"


@dataclass(frozen=True)
class TrainerState:
    """``step``: updates done in the run; ``optimizer_steps``: AdamW's own count; tensors by parameter name.

    ``master`` is empty when ``model/`` holds the weights in full precision. ``cursor``: digest of the last file.
    """

    step: int = 0
    optimizer_steps: int = 0
    total_steps: int | None = None
    cursor: str | None = None
    moments: Mapping[str, torch.Tensor] = field(default_factory=dict)
    master: Mapping[str, torch.Tensor] = field(default_factory=dict)


def write_trainer_state(state: TrainerState, config: UpdateConfig, directory: Path) -> None:
    """Write ``state`` into the new directory ``directory``."""
    directory.mkdir()
    files = {
        "moments": _write_shards(state.moments, "moments", directory),
        "master": _write_shards(state.master, "master", directory),
    }
    content = {
        "format_version": FORMAT_VERSION,
        "step": state.step,
        "optimizer_steps": state.optimizer_steps,
        "schedule": {
            "name": config.schedule,
            "learning_rate": config.learning_rate,
            "warmup_steps": config.warmup_steps,
            "final_learning_rate_share": config.final_learning_rate_share,
            "total_steps": state.total_steps,
        },
        "rng": {"kind": "blake2b of (seed, step, epoch)", "seed": config.seed},
        "cursor": {"step": state.step, "last_input": state.cursor},
        "files": files,
    }
    (directory / _FILE).write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def read_trainer_state(policy: Path) -> TrainerState | None:
    """The trainer state beside a policy; None when there is none (a fresh optimiser)."""
    directory = policy / "trainer"
    if not directory.is_dir():
        return None
    content = read_json(directory / _FILE)
    if content.get("format_version") != FORMAT_VERSION:
        raise InputError(
            f"'{directory / _FILE}' has format version {content.get('format_version')}; this dialrl reads"
            f" {FORMAT_VERSION}. Use --fresh-optimizer, or the dialrl version that wrote it."
        )
    return TrainerState(
        step=content["step"],
        optimizer_steps=content["optimizer_steps"],
        total_steps=content["schedule"]["total_steps"],
        cursor=content["cursor"]["last_input"],
        moments=_read_shards(content["files"]["moments"], directory),
        master=_read_shards(content["files"]["master"], directory),
    )


def _write_shards(tensors: Mapping[str, torch.Tensor], name: str, directory: Path) -> list[str]:
    shards = list(_shards(tensors))
    files = [f"{name}-{index + 1:05d}-of-{len(shards):05d}.safetensors" for index in range(len(shards))]
    for file, shard in zip(files, shards, strict=True):
        save_file({key: tensor.detach().contiguous().cpu() for key, tensor in shard.items()}, directory / file)
    return files


def _shards(tensors: Mapping[str, torch.Tensor]) -> Iterator[dict[str, torch.Tensor]]:
    shard: dict[str, torch.Tensor] = {}
    used = 0
    for name in sorted(tensors):
        size = tensors[name].numel() * tensors[name].element_size()
        if shard and used + size > SHARD_BYTES:
            yield shard
            shard, used = {}, 0
        shard[name] = tensors[name]
        used += size
    if shard:
        yield shard


def _read_shards(files: list[str], directory: Path) -> dict[str, torch.Tensor]:
    tensors: dict[str, torch.Tensor] = {}
    for name in files:
        with safe_open(directory / name, framework="pt") as file:
            tensors |= {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (no mapping)
    return tensors


def master_weights(model: Any) -> dict[str, torch.Tensor]:
    """Every parameter by name in full precision."""
    return {name: whole(parameter.detach()) for name, parameter in model.named_parameters()}


def restore_master_weights(model: Any, tensors: Mapping[str, torch.Tensor], *, where: str) -> None:
    """Put full-precision weights back into ``model``."""
    if not tensors:
        return
    parameters = dict(model.named_parameters())
    if set(parameters) != set(tensors):
        first = sorted(set(parameters) ^ set(tensors))[0]
        raise InputError(f"{where} belongs to another architecture: '{first}' is on one side only.")
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(placed_like(parameter, tensors[name]))
