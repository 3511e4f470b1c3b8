"""What a trainer must remember between two updates, beside the policy's weights: ``trainer/`` of a policy directory.

AdamW's state and, when the weights in ``model/`` are rounded, the master weights, as safetensors shards in full
precision; ``trainer.json`` with step, schedule, seed of the order, cursor. Several processes each write the rows they
hold, and any number of processes reads them. Not here: the weights themselves.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from dialrl.errors import InputError
from dialrl.json_file import as_record
from dialrl.model.distributed import Processes, own_rows, placed_like
from dialrl.model.stored_tensors import StoredTensor, stored_tensors, write_tensors
from dialrl.update.config import UpdateConfig
from dialrl.update.policy_directory import read_json

FORMAT_VERSION = 2  # 1 had whole tensors only, and is read as well
SHARD_BYTES = 4 * 2**30
REMEDY = "Continue from another policy that has its trainer/, or use --fresh-optimizer to train without it."
_FILE = "trainer.json"


@dataclass(frozen=True)
class TrainerProgress:
    """``step``: updates done in the run; ``optimizer_steps``: of AdamW; ``cursor``: digest of the last file."""

    step: int = 0
    optimizer_steps: int = 0
    total_steps: int | None = None
    cursor: str | None = None


@dataclass(frozen=True)
class _Files:
    moments: list[str]
    master: list[str]


@dataclass(frozen=True)
class _Schedule:
    total_steps: int | None


@dataclass(frozen=True)
class _Cursor:
    last_input: str | None


@dataclass(frozen=True)
class _Stored:
    """What is read of ``trainer.json``; the rest is for people."""

    step: int
    optimizer_steps: int
    schedule: _Schedule
    cursor: _Cursor
    files: _Files


@dataclass(frozen=True)
class TrainerState(TrainerProgress):
    """A stored state: its progress, and tensors by parameter name, read when asked for.

    ``master`` is empty when ``model/`` holds the weights in full precision.
    """

    moments: Mapping[str, StoredTensor] = field(default_factory=dict)
    master: Mapping[str, StoredTensor] = field(default_factory=dict)


def write_shards(name: str, tensors: Mapping[str, torch.Tensor], directory: Path, group: Processes) -> None:
    """Write what this process holds of ``tensors`` into ``directory``, as files of at most ``SHARD_BYTES``.

    What is not sharded is written by the first process.
    """
    held: dict[str, torch.Tensor] = {}
    rows: dict[str, tuple[int, int]] = {}
    for key, tensor in tensors.items():
        part, first = own_rows(tensor)
        if part is not tensor and part.numel():
            held[key], rows[key] = part, (first, tensor.shape[0])
        elif part is tensor and group.rank == 0:
            held[key] = tensor
    shards = list(_shards(held))
    whose = "" if group.count == 1 else f"-process-{group.rank + 1:05d}-of-{group.count:05d}"
    for number, shard in enumerate(shards, 1):
        file = directory / f"{name}{whose}-{number:05d}-of-{len(shards):05d}.safetensors"
        write_tensors(shard, file, {key: rows[key] for key in shard if key in rows})


def write_progress(progress: TrainerProgress, config: UpdateConfig, directory: Path) -> None:
    """Write ``trainer.json``, once all processes have written their shards into ``directory``."""
    content = {
        "format_version": FORMAT_VERSION,
        "step": progress.step,
        "optimizer_steps": progress.optimizer_steps,
        "schedule": {
            "name": config.schedule,
            "learning_rate": config.learning_rate,
            "warmup_steps": config.warmup_steps,
            "final_learning_rate_share": config.final_learning_rate_share,
            "total_steps": progress.total_steps,
        },
        "rng": {"kind": "blake2b of (seed, step, epoch)", "seed": config.seed},
        "cursor": {"step": progress.step, "last_input": progress.cursor},
        "files": {name: [file.name for file in _files(directory, name)] for name in ("moments", "master")},
    }
    (directory / _FILE).write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _files(directory: Path, name: str) -> list[Path]:
    return sorted(directory.glob(f"{name}-*.safetensors"))


def read_trainer_state(policy: Path) -> TrainerState | None:
    """The trainer state beside a policy; None when there is none (a fresh optimiser)."""
    directory = policy / "trainer"
    if not directory.is_dir():
        return None
    content = read_json(directory / _FILE)
    if content.get("format_version") not in (1, FORMAT_VERSION):
        raise InputError(
            f"'{directory / _FILE}' has format version {content.get('format_version')}; this dialrl reads"
            f" {FORMAT_VERSION}. Use --fresh-optimizer, or the dialrl version that wrote it."
        )
    stored = as_record(_Stored, content, where=f"'{directory / _FILE}'", remedy=REMEDY)
    moments, master = (
        stored_tensors((directory / file for file in files), remedy=REMEDY)
        for files in (stored.files.moments, stored.files.master)
    )
    return TrainerState(
        step=stored.step,
        optimizer_steps=stored.optimizer_steps,
        total_steps=stored.schedule.total_steps,
        cursor=stored.cursor.last_input,
        moments=moments,
        master=master,
    )


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


def master_weights(model: Any) -> dict[str, torch.Tensor]:
    """Every parameter by name in full precision, as it is sharded."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def restore_master_weights(model: Any, tensors: Mapping[str, StoredTensor], *, where: str) -> None:
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
