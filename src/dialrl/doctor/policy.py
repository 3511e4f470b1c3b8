"""The policy's files: are they on this machine, do they load in memory, what does an update of them take.

Fetches nothing and loads no weights. Not here: the template (``template``), log-probs (``logprobs``).
"""

from dataclasses import dataclass
from pathlib import Path

from dialrl.doctor.check import Check
from dialrl.doctor.hardware import free_memory, size
from dialrl.doctor.software import installed
from dialrl.doctor.subject import Subject
from dialrl.errors import DialrlError, InputError, MissingInputError
from dialrl.model.find import find_policy, is_hub_name

AREA = "Policy"
_FLOAT = 4
_STATE_COPIES = 3  # master weights and two moments


@dataclass(frozen=True)
class FoundPolicy:
    """``directory`` of the model's files on this machine; None where there are none, or nobody may look."""

    checks: tuple[Check, ...]
    directory: Path | None = None
    fits: bool = True


def find(subject: Subject) -> FoundPolicy:
    """The examined policy's directory, and what is known without loading it."""
    asked = subject.examined_policy
    if asked is None:
        return FoundPolicy((Check(AREA, "policy", "not applicable", "none named", "--policy DIR, or --config FILE"),))
    if subject.engine == "openai" and is_hub_name(asked) and not Path(asked).exists():
        return FoundPolicy((Check(AREA, "policy", "not applicable", f"'{asked}' is served by an endpoint"),))
    try:
        directory = _on_this_machine(asked)
    except MissingInputError as error:
        return FoundPolicy((Check(AREA, "policy", "failed", str(error)),))
    if directory is None:
        advice = f"It is fetched at its first use, or now: hf download {asked}"
        return FoundPolicy((Check(AREA, "policy", "warning", f"'{asked}' is not on this machine yet", advice),))
    if not (directory / "config.json").is_file():
        advice = "Expected model/config.json or config.json, with weights as .safetensors."
        return FoundPolicy((Check(AREA, "policy", "failed", f"'{directory}' is no policy", advice),))
    return _measured(subject, directory)


def _on_this_machine(asked: str) -> Path | None:
    """The model's directory; None for a hub name whose files were never fetched."""
    place = find_policy(asked)
    if isinstance(place, Path):
        inner = place / "model"
        return inner if (inner / "config.json").is_file() else place
    if installed("huggingface_hub") is None:
        return None
    from huggingface_hub import try_to_load_from_cache

    kept = try_to_load_from_cache(place, "config.json")
    return Path(kept).parent if isinstance(kept, str) else None


def _measured(subject: Subject, directory: Path) -> FoundPolicy:
    from dialrl.update.memory import shape_of_policy

    weights = sum(file.stat().st_size for file in directory.glob("*.safetensors"))
    if not weights:
        advice = "Convert them with model.save_pretrained(DIR) of transformers; only safetensors are read."
        return FoundPolicy(
            (Check(AREA, "policy", "failed", f"'{directory}' holds no .safetensors", advice),), directory
        )
    try:
        shape = shape_of_policy(directory)
    except (InputError, KeyError, TypeError) as error:
        found = f"'{directory}', {size(weights)} of weights; its shape is not known ({error})"
        return FoundPolicy((Check(AREA, "policy", "warning", found),), directory)
    held = shape.parameters * _FLOAT
    details = {"directory": str(directory), "parameters": shape.parameters, "weights_bytes": weights}
    found = f"'{directory}', {_count(shape.parameters)} parameters, {size(weights)} of weights"
    checks = [Check(AREA, "policy", "ok", found, details=details), *_update_memory(subject, directory)]
    free = free_memory()
    return FoundPolicy(tuple(checks), directory, fits=free is None or 2 * held < free)


def _update_memory(subject: Subject, directory: Path) -> list[Check]:
    """What an update takes of memory, and a saved policy of the disk."""
    from dialrl.update.config import UpdateConfig
    from dialrl.update.memory import estimate_memory, shape_of_policy

    config = subject.pipeline.update if subject.pipeline else UpdateConfig()
    shape = shape_of_policy(directory)
    try:
        estimate = estimate_memory(config, shape)
    except DialrlError as error:
        return [Check(AREA, "update", "failed", str(error))]
    saved = shape.parameters * _FLOAT * (1 + _STATE_COPIES)
    found = f"{estimate.sentence()}; a saved policy with its trainer state takes {size(saved)} of disk"
    details = {"needed_bytes": estimate.total, "saved_bytes": saved}
    free = free_memory()
    if subject.device == "cpu" and free is not None and estimate.total > free:
        advice = f"{size(free)} is free here: shorten max_sequence_tokens, set lora_rank, or take a smaller policy."
        return [Check(AREA, "update", "warning", found, advice, details)]
    return [Check(AREA, "update", "ok", found, details=details)]


def _count(parameters: int) -> str:
    return f"{parameters / 1e9:.1f} B" if parameters >= 1e9 else f"{parameters / 1e6:.1f} M"
