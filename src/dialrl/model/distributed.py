"""Training in several processes: weights, gradients and optimiser state sharded over them (FSDP2), sums over them.

``torchrun`` starts the processes and tells each its number; nothing here starts any. With one process every function
is the identity, so that callers need no second code path. Not here: which process gets which dialogues, files.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import distributed
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from dialrl.model.logprobs import HeadSettings, TokenLogprobs, token_logprobs
from dialrl.model.packing import SequenceBatch
from dialrl.model.stored_tensors import StoredTensor
from dialrl.model.torchrun import started

Forward = Callable[[SequenceBatch, HeadSettings], TokenLogprobs]


@dataclass(frozen=True)
class Processes:
    """How many processes train together, and the number of this one."""

    count: int = 1
    rank: int = 0


def processes() -> Processes:
    """The processes that torchrun started (joining them at the first call); one when it did not."""
    if started().count == 1:
        return Processes()
    if not distributed.is_initialized():  # small sums go over the CPU on any machine
        distributed.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
    return Processes(distributed.get_world_size(), distributed.get_rank())


def local_device(device: str) -> str:
    """The device of this process: of a list its own entry, of ``cuda`` the GPU of its number on this machine.

    It becomes the current one, where shards and sums over GPUs go.
    """
    number = started().local_rank
    listed = device.split(",")
    own = listed[(number or 0) % len(listed)].strip()
    if own == "cuda" and number is not None:
        own = f"cuda:{number}"
    if own.startswith("cuda:") and torch.cuda.is_available():
        torch.cuda.set_device(own)
    return own


class _Forward(torch.nn.Module):  # type: ignore[misc]
    """Decoder and head as one call, the root that gathers what both use (their weights may be tied)."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: SequenceBatch, settings: HeadSettings) -> tuple[torch.Tensor, torch.Tensor]:
        result = token_logprobs(self.model, batch, settings)
        return result.logprobs_T, result.entropy_T


def shard_model(model: Any, group: Processes, device: torch.device) -> Forward:
    """Shard ``model`` in place over ``group``; its forward pass from here on. With one process nothing is sharded.

    The shards go to ``device``, layer by layer: a model in ordinary memory is never whole on a GPU. Gradients are
    summed over processes, not averaged: token weights already are those of the whole optimiser step.
    """
    if group.count == 1:
        return lambda batch, settings: token_logprobs(model, batch, settings)
    root = _Forward(model)
    mesh = distributed.init_device_mesh(device.type, (group.count,))
    for layer in model.get_decoder().layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(root, mesh=mesh, reshard_after_forward=False)
    for module in (*model.get_decoder().layers, root):
        module.set_gradient_divide_factor(1.0)
        module.set_force_sum_reduction_for_comms(True)
    return lambda batch, settings: TokenLogprobs(*root(batch, settings))


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """All of a tensor that may be sharded; every process must ask for it."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def gathered(tensors: Iterable[tuple[str, torch.Tensor]], group: Processes) -> dict[str, torch.Tensor]:
    """All of each tensor, in the first process and in its ordinary memory; nothing in the others.

    Every process must ask for it. One tensor at a time is whole anywhere else.
    """
    found: dict[str, torch.Tensor] = {}
    for name, tensor in tensors:
        all_of_it = whole(tensor.detach())
        if group.rank == 0:
            found[name] = all_of_it if group.count == 1 else all_of_it.cpu()
    return found


def own_rows(tensor: torch.Tensor) -> tuple[torch.Tensor, int]:
    """What this process holds of a tensor that may be sharded, and which row of the whole is its first.

    Example: 5 rows over 2 processes are rows 0-2, first 0, and rows 3-4, first 3.
    """
    if not isinstance(tensor, DTensor):
        return tensor, 0
    local, processes = tensor.to_local(), tensor.device_mesh.size()
    rows = -(-tensor.shape[0] // processes)
    first = min(tensor.device_mesh.get_local_rank() * rows, tensor.shape[0])
    return local, first


def placed_like(parameter: torch.Tensor, stored: StoredTensor) -> torch.Tensor:
    """``stored`` on the device and, if so, in the shards of ``parameter``; a process reads its own rows only."""
    if not isinstance(parameter, DTensor):
        return stored.read().to(parameter.device)
    local, first = own_rows(parameter)
    rows = stored.read(first, first + local.shape[0]).to(local.device)
    return DTensor.from_local(
        rows.contiguous(),
        parameter.device_mesh,
        parameter.placements,
        run_check=False,
        shape=parameter.shape,
        stride=parameter.stride(),
    )


def summed(values: Sequence[float], group: Processes) -> list[float]:
    """Each value summed over the processes."""
    return _reduced(values, group, distributed.ReduceOp.SUM) if group.count > 1 else list(values)


def largest(values: Sequence[float], group: Processes) -> list[float]:
    """The largest of each value over the processes."""
    return _reduced(values, group, distributed.ReduceOp.MAX) if group.count > 1 else list(values)


def _reduced(values: Sequence[float], group: Processes, operation: Any) -> list[float]:
    tensor = torch.tensor(list(values), dtype=torch.float64)
    distributed.all_reduce(tensor, op=operation)
    return [float(value) for value in tensor.tolist()]


def share_known(values_T: torch.Tensor, group: Processes) -> None:
    """Fill in, in place, what other processes know: NaN is not known, and nothing is known to two of them."""
    if group.count > 1:
        known = values_T.nan_to_num(0.0)
        somewhere = (~values_T.isnan()).to(values_T.dtype)
        distributed.all_reduce(known)
        distributed.all_reduce(somewhere)
        values_T.copy_(torch.where(somewhere > 0, known / somewhere.clamp(min=1.0), torch.nan))


def wait_for_all(group: Processes) -> None:
    """Go on when every process has come here."""
    summed([0.0], group)
