"""Trying the rungs of the delivery ladder before they are needed, with weights changed on purpose.

Weights that do not change would look delivered on any rung. So each rung gets a copy of the policy with a little noise
on its weights (for *lora*: a made-up adapter), is compared, and gets the policy back. ``check_delivery`` is for
``dialrl doctor``: it opens a vLLM, tries every rung and closes it. Not here: the rungs (``delivery``).
"""

import asyncio
import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dialrl.endpoint.calls import ModelCalls
from dialrl.engine.delivery import Weights, weights_of
from dialrl.engine.delivery_probe import SamplerProbe, probe_sampler
from dialrl.engine.vllm import VllmEngine, base_of_adapter, open_vllm
from dialrl.engine.vllm_copy import tensor_places
from dialrl.engine.vllm_settings import Rung, vllm_settings
from dialrl.model.digest import policy_digest
from dialrl.model.loading import model_directory

_NOISE = 0.02  # of each matrix's own spread
_SEED = 20_260_101


@dataclass(frozen=True)
class RungTrial:
    """What a rung did. ``works`` None: not tried; ``reason``: why not, or what went wrong; ``difference``: mean
    |log-prob difference| to the trainer after the changed weights came."""

    rung: Rung
    works: bool | None
    reason: str | None = None
    difference: float | None = None

    def sentence(self) -> str:
        """One line for people."""
        if self.works is None:
            return f"delivery by {self.rung}: not tried ({self.reason})"
        if not self.works:
            return f"delivery by {self.rung}: does not work ({self.reason})"
        return f"delivery by {self.rung}: works (mean |log-prob difference| {self.difference:.2g})"


@dataclass(frozen=True)
class DeliveryCheck:
    """What ``check_delivery`` found: the sampler against the trainer, and every rung."""

    sampler: SamplerProbe
    rungs: tuple[RungTrial, ...]

    @property
    def best(self) -> Rung | None:
        """The rung that training would use."""
        return next((trial.rung for trial in self.rungs if trial.works), None)

    def to_json(self) -> dict[str, Any]:
        return {"sampler": asdict(self.sampler), "rungs": [asdict(trial) for trial in self.rungs], "best": self.best}


def check_delivery(
    policy: str | Path,
    engine_options: Mapping[str, Any] | None = None,
    *,
    device: str = "cpu",
    template_options: Mapping[str, Any] | None = None,
) -> DeliveryCheck:
    """Start a vLLM with ``policy``, compare sampler and trainer, try every rung, end it.

    ``engine_options`` as of the engine ``vllm``. Raises MissingExtraError (what to install), UsageError (a wrong
    option) and EngineError (vLLM does not start).
    """
    engine = open_vllm(policy, vllm_settings(engine_options or {}), device=device, template_options=template_options)
    try:
        sampler = asyncio.run(_probed(engine, policy))
        return DeliveryCheck(sampler, tuple(try_rungs(engine, policy, every=True)))
    finally:
        engine.close()


async def _probed(engine: VllmEngine, policy: str | Path) -> SamplerProbe:
    calls = ModelCalls()
    engine.connect(calls)
    async with calls:
        return await probe_sampler(engine, policy)


def try_rungs(engine: VllmEngine, policy: str | Path, *, every: bool = False) -> list[RungTrial]:
    """Try rungs, best first, until one works (``every``: all of them); what fails is not used by this engine again.

    ``policy`` is what the engine serves, and serves again afterwards. Models above ``trial_bytes`` are not tried: their
    first delivery tells.
    """
    ladder, settings = engine.ladder, engine.ladder.settings
    weights = weights_of(policy)
    size = sum(file.stat().st_size for file in weights.model.glob("*.safetensors"))
    trials: list[RungTrial] = []
    for rung in settings.delivery:
        if size > settings.trial_bytes:
            trials.append(RungTrial(rung, None, f"{size / 1e9:.1f} GB of weights are above engine_options.trial_bytes"))
        elif any(trial.works for trial in trials) and not every:
            trials.append(RungTrial(rung, None, "a better one works"))
        elif rung == "restart" and not every:
            trials.append(RungTrial(rung, None, "a start is what brought these weights"))
        else:
            trials.append(_try(engine, rung, weights))
    if any(trial.works is False for trial in trials):
        ladder.deliver(weights, engine.reference(policy))
    return trials


def _try(engine: VllmEngine, rung: Rung, weights: Weights) -> RungTrial:
    ladder = engine.ladder
    folder = ladder.work / "trial"
    shutil.rmtree(folder, ignore_errors=True)
    changed = _changed(weights, folder, ladder.settings.lora_rank if rung == "lora" else None)
    reason = ladder.unusable(rung, changed)
    if reason is not None:
        return RungTrial(rung, None, reason)
    difference, fault = ladder.climb(rung, changed, engine.reference(folder))
    if fault is None and rung == "lora" and weights.adapter is None:
        fault = ladder.drop_adapter(engine.reference(weights.policy))
    elif fault is None:
        _, fault = ladder.climb(rung, weights, engine.reference(weights.policy))
    if fault is not None:
        ladder.dropped[rung] = fault
        return RungTrial(rung, False, fault, difference)
    return RungTrial(rung, True, None, difference)


def _changed(weights: Weights, folder: Path, rank: int | None) -> Weights:
    """A policy directory like ``weights`` with other weights; with ``rank`` an adapter on its base."""
    base = base_of_adapter(weights.adapter) if rank is not None and weights.adapter is not None else None
    if rank is None:
        _write_model(weights.model, folder / "model", None)
        return weights_of(folder)
    base = base or weights.model
    (folder / "adapter").mkdir(parents=True)
    _write_model(base, folder / "model", _made_up_adapter(base, folder / "adapter", rank))
    about = {"path": str(base.resolve()), "digest": policy_digest(base)}
    (folder / "adapter" / "base.json").write_text(json.dumps(about), encoding="utf-8")
    return weights_of(folder)


def _write_model(source: Path, target: Path, added: Mapping[str, Any] | None) -> None:
    """``source`` with noise on every matrix, or with ``added`` on top of the matrices it names."""
    import torch
    from safetensors.torch import load_file, save_file

    target.mkdir(parents=True)
    generator = torch.Generator().manual_seed(_SEED)
    for file in sorted(model_directory(source).iterdir()):
        if file.suffix != ".safetensors":
            if file.is_file():
                (target / file.name).symlink_to(file.resolve())
            continue
        tensors = load_file(file)
        for name, tensor in tensors.items():
            if added is not None and name in added:
                tensors[name] = (tensor.float() + added[name]).to(tensor.dtype)
            elif added is None and tensor.dim() == 2 and tensor.is_floating_point():
                noise = torch.randn(tensor.shape, generator=generator)
                tensors[name] = (tensor.float() + _NOISE * tensor.float().std() * noise).to(tensor.dtype)
        save_file(tensors, target / file.name, metadata={"format": "pt"})


def _made_up_adapter(base: Path, folder: Path, rank: int) -> dict[str, Any]:
    """Write a LoRA adapter in PEFT's format on every matrix inside a layer; what it adds to each of them."""
    import torch
    from safetensors import safe_open
    from safetensors.torch import save_file

    generator = torch.Generator().manual_seed(_SEED)
    stored: dict[str, Any] = {}
    added: dict[str, Any] = {}
    for name, file in sorted(tensor_places(base).items()):
        with safe_open(file, framework="pt") as tensors:
            tensor = tensors.get_tensor(name).float()
        if ".layers." not in name or not name.endswith("proj.weight") or tensor.dim() != 2:
            continue
        down = torch.randn((rank, tensor.shape[1]), generator=generator) / rank**0.5
        up = _NOISE * tensor.std() * torch.randn((tensor.shape[0], rank), generator=generator)
        prefix = f"base_model.model.{name.removesuffix('.weight')}"
        stored |= {f"{prefix}.lora_A.weight": down, f"{prefix}.lora_B.weight": up}
        added[name] = up @ down
    save_file(stored, folder / "adapter_model.safetensors")
    modules = sorted({name.removesuffix(".weight").rsplit(".", 1)[-1] for name in added})
    about = {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "r": rank, "lora_alpha": rank, "bias": "none",
        "target_modules": modules, "base_model_name_or_path": str(base.resolve()),
    }  # fmt: skip
    (folder / "adapter_config.json").write_text(json.dumps(about), encoding="utf-8")
    return added
