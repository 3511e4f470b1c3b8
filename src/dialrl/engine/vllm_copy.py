"""What vLLM loads: the policy's own model directory, or a copy of it whose output head is stored apart.

Where a model's head *is* its embedding (``tie_word_embeddings``), reloading weights in place leaves vLLM with
log-probs of neither the old weights nor the new. A copy that says "not tied" and stores the same matrix twice is the
same function and can be reloaded; it links to the policy's files and adds one matrix. Not here: the reloading.
"""

import json
import shutil
from pathlib import Path
from typing import Any

from dialrl.errors import InputError
from dialrl.json_file import read_object
from dialrl.model.digest import policy_digest

_EMBEDDING, _HEAD = "embed_tokens.weight", "lm_head.weight"
_INDEX, _ADDED = "model.safetensors.index.json", "model-head.safetensors"
_WHOLE, _RENAMED = "model.safetensors", "model-body.safetensors"  # under its own name it would hide the index


def servable(model: Path, work: Path) -> Path:
    """A directory for vLLM with the weights of ``model``: itself when nothing is tied, else an untied copy in ``work``.

    A model whose embedding cannot be told by its name is served as it is; the probe after a delivery then decides.
    """
    places = tensor_places(model)
    embedding = next((name for name in sorted(places) if name.endswith(_EMBEDDING)), None)
    if embedding is None or _HEAD in places:  # a stored head is a head of its own
        return model
    configuration = read_object(model / "config.json")
    copy = work / policy_digest(model).removeprefix("sha256:")[:16]
    if not (copy / "config.json").is_file():
        shutil.rmtree(copy, ignore_errors=True)
        copy.mkdir(parents=True)
        _link_files(model, copy)
        _store_head(places[embedding], embedding, copy / _ADDED)
        _write(copy / _INDEX, _index(model, places))
        _write(copy / "config.json", _untied(configuration))  # last: a copy with it is whole
    return copy


def tensor_places(model: Path) -> dict[str, Path]:
    """File of each tensor of a model directory. Raises InputError when there is none."""
    from safetensors import safe_open

    places: dict[str, Path] = {}
    for file in sorted(model.glob("*.safetensors")):
        with safe_open(file, framework="numpy") as tensors:
            places.update(dict.fromkeys(tensors.keys(), file))
    if not places:
        raise InputError(f"'{model}' holds no .safetensors file; vLLM is given policies in safetensors only.")
    return places


def _untied(configuration: dict[str, Any]) -> dict[str, Any]:
    changed = {**configuration, "tie_word_embeddings": False}
    if isinstance(configuration.get("text_config"), dict):
        changed["text_config"] = {**configuration["text_config"], "tie_word_embeddings": False}
    return changed


def _link_files(model: Path, copy: Path) -> None:
    for file in sorted(model.iterdir()):
        if file.is_file() and file.name not in (_INDEX, "config.json"):
            (copy / _linked(file)).symlink_to(file.resolve())


def _linked(file: Path) -> str:
    return _RENAMED if file.name == _WHOLE else file.name


def _store_head(file: Path, embedding: str, target: Path) -> None:
    from safetensors import safe_open
    from safetensors.torch import save_file

    with safe_open(file, framework="pt") as tensors:
        save_file({_HEAD: tensors.get_tensor(embedding)}, target, metadata={"format": "pt"})


def _index(model: Path, places: dict[str, Path]) -> dict[str, Any]:
    files = {name: _linked(file) for name, file in places.items()} | {_HEAD: _ADDED}
    size = sum(file.stat().st_size for file in sorted(set(places.values())))
    return {"metadata": {"total_size": size}, "weight_map": dict(sorted(files.items()))}


def _write(file: Path, content: dict[str, Any]) -> None:
    file.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")
