"""What a pipeline needs of the machine it starts on: the devices it names, the policy's files. Loads no weights.

Apart from the check of names and settings (``check``), since a pipeline may be looked at where it will not run.
"""

import importlib.util
from collections.abc import Iterator
from pathlib import Path

from dialrl.errors import UsageError, missing_extra
from dialrl.model.find import find_policy
from dialrl.model.loading import model_directory
from dialrl.rollout.check import check_engine_here
from dialrl.train.config import PipelineConfig


def check_machine(pipeline: PipelineConfig) -> None:
    """Raise UsageError for an engine or a device that this machine lacks. torch is asked only where a GPU is named."""
    check_engine_here(pipeline.rollout)
    for key, device in _devices(pipeline.on_its_devices()):
        if device.startswith("cuda"):
            _check_gpu(key, device)


def fetch_policy(pipeline: PipelineConfig) -> None:
    """Have the policy's files on this machine. Raises MissingInputError where they cannot be fetched."""
    if pipeline.rollout.engine in ("hf", "vllm"):
        model_directory(find_policy(pipeline.policy))


def missing_here(pipeline: PipelineConfig) -> tuple[str, ...]:
    """What training would have to fetch, or would be refused on this machine, a line each."""
    lines = []
    try:
        check_machine(pipeline)
    except UsageError as error:
        lines.append(f"not here: {error}")
    fetched = _is_fetched(pipeline)
    return (*lines, *([fetched] if fetched else []))


def _devices(pipeline: PipelineConfig) -> Iterator[tuple[str, str]]:
    """Devices in use, with the key that names them; another engine's devices are those of its own environment."""
    if pipeline.rollout.engine == "hf":
        yield "rollout.device", pipeline.rollout.device
    if pipeline.evaluate.engine == "hf" and pipeline.train.evaluate_every:
        yield "evaluate.device", pipeline.evaluate.device
    for device in pipeline.update.device.split(","):
        yield "update.device", device.strip()


def _check_gpu(key: str, device: str) -> None:
    if importlib.util.find_spec("torch") is None:
        raise missing_extra("train", "torch")
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    number = device.partition(":")[2]
    if not count:
        raise UsageError(
            f"{key} is '{device}', but torch sees no CUDA device here. Use cpu, or run where there is one."
        )
    if number.isdigit() and int(number) >= count:
        raise UsageError(
            f"{key} is '{device}', but torch sees {count} CUDA device(s) here: cuda:0 to cuda:{count - 1}."
        )


def _is_fetched(pipeline: PipelineConfig) -> str | None:
    """A line for a policy that is a mere name so far."""
    if pipeline.rollout.engine not in ("hf", "vllm"):
        return None
    place = find_policy(pipeline.policy)
    if isinstance(place, Path):
        return None
    return f"the policy '{place}' is no directory here: it is a name, which transformers fetches unless it has it"
