"""Low-rank adapters (LoRA, arXiv 2106.09685, through PEFT): trained beside frozen weights, saved as adapter and merged.

A policy trained so has ``adapter/`` beside ``model/``: the adapter in PEFT's format, naming the base it belongs to, and
the merged model, which loads anywhere. Training continues from base and adapter, never from the merged weights, whose
sum was rounded. Not here: full fine-tuning, trainer state.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from dialrl.errors import InputError, missing_extra
from dialrl.model.base import read_base
from dialrl.model.digest import policy_digest
from dialrl.model.distributed import Processes, gathered, whole
from dialrl.model.stored_tensors import read_tensors, write_tensors
from dialrl.update.config import UpdateConfig
from dialrl.update.policy_directory import read_json

FOLDER = "adapter"
_NAME = "default"
_WEIGHTS, _CONFIG, _BASE = "adapter_model.safetensors", "adapter_config.json", "base.json"
_PREFIX = "base_model.model."
_REMEDY = "Run the update again that made this policy."


def add_adapter(model: Any, config: UpdateConfig) -> None:
    """Freeze ``model`` and put a fresh adapter on its linear layers, in place; its product is 0 at first.

    Raises MissingExtraError without PEFT.
    """
    peft = _peft()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        peft.inject_adapter_in_model(_settings(config), model, adapter_name=_NAME)


def _settings(config: UpdateConfig) -> Any:
    return _peft().LoraConfig(
        r=config.lora_rank,
        lora_alpha=config.lora_alpha,
        lora_dropout=0.0,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )


def base_of(policy: Path) -> Path | None:
    """Directory of the base model that ``policy``'s adapter belongs to; None when it has no adapter.

    Raises InputError when the base is not where it was, or is another one now.
    """
    file = policy / FOLDER / _BASE
    if not file.is_file():
        return None
    about = read_base(file)
    base = Path(about.path)
    if not (base / "config.json").is_file():
        raise InputError(f"The adapter of '{policy}' belongs to the base model '{base}', which does not exist.")
    if (found := policy_digest(base)) != about.digest:
        raise InputError(f"The base model '{base}' has digest {found}; '{file}' expects {about.digest}.")
    return base


def load_adapter(model: Any, policy: Path, config: UpdateConfig) -> None:
    """Weights of ``policy``'s adapter into a model that has one.

    Raises InputError for another shape or scale: under those the same weights are another policy.
    """
    _check_scale(policy, config)
    stored = {_own(name): tensor for name, tensor in read_tensors(policy / FOLDER / _WEIGHTS, remedy=_REMEDY).items()}
    own = adapter_weights(model)
    shapes = {name: tensor.shape for name, tensor in own.items()}
    if shapes != {name: tensor.shape for name, tensor in stored.items()}:
        raise InputError(f"The adapter of '{policy}' has another rank or other layers than lora_rank asks for.")
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(stored[name])


def _check_scale(policy: Path, config: UpdateConfig) -> None:
    """The product counts lora_alpha / lora_rank times; the rank is checked with the shapes."""
    file = policy / FOLDER / _CONFIG
    stored = read_json(file).get("lora_alpha")
    if stored != config.lora_alpha:
        raise InputError(
            f"The adapter of '{policy}' was trained with lora_alpha {stored}, now given is {config.lora_alpha:g}: that"
            f" would be another policy than the one saved. Give --lora-alpha {stored}, or start a new adapter on"
            f" '{policy / 'model'}'."
        )


def adapter_weights(model: Any) -> dict[str, torch.Tensor]:
    """The adapter's parameters by their names in ``model``."""
    return {name: parameter for name, parameter in model.named_parameters() if ".lora_" in name}


def save_adapter(weights: Mapping[str, torch.Tensor], config: UpdateConfig, base: Path, directory: Path) -> None:
    """Write ``adapter/`` into the new policy ``directory``; ``base`` is the model directory it was trained on.

    ``weights``: whole, by their names in the model.
    """
    folder = directory / FOLDER
    folder.mkdir()
    write_tensors({_stored(name): tensor for name, tensor in weights.items()}, folder / _WEIGHTS)
    settings = _settings(config)
    settings.target_modules = sorted({name.split(".lora_")[0].rsplit(".", 1)[-1] for name in weights})
    settings.base_model_name_or_path = str(base.resolve())
    settings.inference_mode = True
    settings.save_pretrained(folder)
    content = json.loads((folder / _CONFIG).read_text(encoding="utf-8"))
    (folder / _CONFIG).write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    about = {"path": str(base.resolve()), "digest": policy_digest(base)}
    (folder / _BASE).write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")


def merged_weights(model: Any, group: Processes) -> dict[str, torch.Tensor]:
    """All weights by the names of the base model, the adapter's product added, in the first of ``group``'s processes.

    ``model`` itself is not touched. Every process must ask for it.
    """
    return gathered(_merged(model), group)


def _merged(model: Any) -> Iterator[tuple[str, torch.Tensor]]:
    layers = {name: layer for name, layer in model.named_modules() if hasattr(layer, "lora_A")}
    for name, parameter in model.named_parameters():
        if ".lora_" in name:
            continue
        layer = name.removesuffix(".base_layer.weight")
        tensor = whole(parameter.detach())
        if layer in layers and layer != name:
            tensor = tensor + _product(layers[layer])
        yield name.replace(".base_layer.", "."), tensor


def _product(layer: Any) -> torch.Tensor:
    """What the adapter of a linear layer adds to its weight: B A times its scaling."""
    first, second = (whole(part[_NAME].weight.detach()) for part in (layer.lora_A, layer.lora_B))
    product: torch.Tensor = (second @ first) * layer.scaling[_NAME]
    return product.T if layer.fan_in_fan_out else product


def _stored(name: str) -> str:
    return _PREFIX + name.replace(f".{_NAME}.", ".")


def _own(name: str) -> str:
    return name.removeprefix(_PREFIX).removesuffix(".weight") + f".{_NAME}.weight"


def _peft() -> Any:
    from importlib import import_module

    try:
        return import_module("peft")
    except ModuleNotFoundError as error:
        raise missing_extra("peft", "peft") from error
