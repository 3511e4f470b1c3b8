"""vLLM's weight-transfer protocol over NCCL: from this process's GPU into the server's, without a file in between.

Needs a CUDA device here and vllm in this very interpreter, whose trainer side of the protocol is used. On a CPU it is
not to be had, and the ladder says so. Not here: when it is used (``delivery``).
"""

from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dialrl.engine.vllm_copy import tensor_places
from dialrl.engine.vllm_host import HostError

SERVER_ARGUMENTS = ("--weight-transfer-config", '{"backend": "nccl"}')


def cannot_transfer() -> str | None:
    """Why weights cannot be transferred from this process; None: they can be tried."""
    if find_spec("torch") is None or not import_module("torch").cuda.is_available():
        return "needs a CUDA device in the trainer's process; there is none"
    if find_spec("vllm") is None:
        return "needs the package 'vllm' in the trainer's own interpreter"
    return None


def send_weights(model: Path, server: str, port: int, workers: int, timeout_seconds: float) -> None:
    """The tensors of ``model`` to every worker of ``server``; ``port``: a free one, where the two sides meet."""
    nccl = import_module("vllm.distributed.weight_transfer.nccl_engine")
    clients = import_module("vllm.distributed.weight_transfer.clients")
    about = nccl.NCCLTrainerInitInfo(
        master_address="127.0.0.1", master_port=port, world_size=workers + 1, rank=0
    )  # this process is rank 0
    client = clients.HTTPVLLMWeightSyncClient(server, timeout=timeout_seconds)
    try:
        sender = nccl.NCCLTrainerWeightTransferEngine.trainer_init(about, client=client, source=stored_source(model))
        try:
            sender.send_weights()
        finally:
            client.shutdown_weight_transfer_engine()
    except (RuntimeError, ValueError, OSError) as error:
        raise HostError(f"the weight transfer failed: {type(error).__name__}: {error}") from error


def stored_source(model: Path) -> Any:
    """The tensors of a model directory as the protocol's source, put on the GPU one by one."""
    base = import_module("vllm.distributed.weight_transfer.base")
    safetensors = import_module("safetensors")
    places = tensor_places(model)

    def read(name: str, device: str) -> Any:
        with safetensors.safe_open(places[name], framework="pt", device=device) as tensors:
            return tensors.get_tensor(name)

    class StoredSource(base.WeightSource):  # type: ignore[misc,name-defined]  # vllm is no dependency of type checks
        def metadata(self) -> list[Any]:
            held = [(name, read(name, "cpu")) for name in sorted(places)]
            return [base.ParamMeta(name, tensor.dtype, tuple(tensor.shape)) for name, tensor in held]

        def __iter__(self) -> Iterator[tuple[str, Any]]:
            for name in sorted(places):
                yield name, read(name, "cuda")

    return StoredSource()
