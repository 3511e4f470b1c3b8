"""Tiny policies that vLLM can serve on a CPU, and how it is started. Not a test module."""

import os
from pathlib import Path
from typing import Any

from tests.toys import THINKING, tiny_policy

from dialrl.update.config import UpdateConfig


def tiny(directory: Path, *, tied: bool = True, seed: int = 0) -> Path:
    """A random Qwen3 of two layers with a thinking template; its model directory. vLLM needs heads of 32 on a CPU."""
    shape = {"hidden_size": 64, "head_dim": 32, "max_position_embeddings": 32_768}
    return tiny_policy(directory, seed=seed, chat_template=THINKING, tie_word_embeddings=tied, **shape) / "model"


def engine_options(**more: Any) -> dict[str, Any]:
    """``engine_options`` for a small CPU: no compilation, one thread, one GiB of cache."""
    environment = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}
    return {
        "python": os.environ.get("DIALRL_VLLM_PYTHON"),
        "extra_arguments": ["--enforce-eager"],
        "environment": environment,
        **more,
    }


def changed(model: Path, directory: Path, *, seed: int) -> Path:
    """A policy directory with other weights of the same shape, as ``update`` writes it."""
    return _moved(model, directory, UpdateConfig(device="cpu"), seed=seed, size=0.03)


def adapted(base: Path, directory: Path, *, seed: int, rank: int = 4) -> Path:
    """A policy directory as ``update`` writes it with ``lora_rank``: adapter, its base, and the merged model."""
    return _moved(base, directory, UpdateConfig(device="cpu", lora_rank=rank), seed=seed, size=0.2)


def _moved(model: Path, directory: Path, config: UpdateConfig, *, seed: int, size: float) -> Path:
    import torch

    from dialrl.update.trainer import Trainer

    trainer = Trainer.open(model, config)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in trainer.learner.model.parameters():
            if parameter.requires_grad:
                parameter.add_(size * torch.randn(parameter.shape, generator=generator))
    trainer.learner.steps += 1  # as if a step had moved them
    trainer.save(directory)
    return directory
