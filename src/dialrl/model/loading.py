"""Loads a policy: a policy directory (``model/`` beside ``manifest.json``), a plain transformers directory, a hub name.

Safetensors only, no code from the model unless asked. Not here: writing policy directories (``dialrl.update``), and the
policy's digest (``dialrl.model.digest``).
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dialrl.errors import InputError, MissingInputError, UsageError, missing_extra
from dialrl.model.find import is_hub_name
from dialrl.model.threads import fit_threads

Precision = Literal["float32", "bfloat16", "float16"]
PRECISIONS: tuple[Precision, ...] = ("float32", "bfloat16", "float16")
_HUB_FILES = ["*.safetensors", "*.json", "*.jinja", "*.txt", "*.model"]


@dataclass(frozen=True)
class LoadingSettings:
    """``device``: a torch device name. ``attention``: transformers' attention implementation, None for its default."""

    device: str = "cpu"
    precision: Precision = "float32"
    attention: str | None = None
    trust_remote_code: bool = False


def load_policy(policy: str | Path, settings: LoadingSettings | None = None) -> tuple[Any, Any]:
    """``(model, tokenizer)``: the causal language model in evaluation mode, and its tokenizer.

    Raises MissingInputError for a directory that does not exist, InputError for one that holds no such model, and
    MissingExtraError without torch and transformers.
    """
    settings = settings or LoadingSettings()
    directory = model_directory(policy)
    return load_model(directory, settings), load_tokenizer(directory, trust_remote_code=settings.trust_remote_code)


def load_model(policy: str | Path, settings: LoadingSettings) -> Any:
    """The causal language model of a policy, on its device, in evaluation mode."""
    transformers, torch = _import("transformers"), _import("torch")
    transformers.utils.logging.disable_progress_bar()  # our own progress is shown; bars of others would break into it
    directory = model_directory(policy)
    if settings.precision not in PRECISIONS:
        raise UsageError(f"precision is '{settings.precision}'; expected one of {', '.join(PRECISIONS)}.")
    from dialrl.model.device import checked_device  # here: it loads torch

    device = checked_device(settings.device)
    if not list(directory.glob("*.safetensors")):
        raise InputError(
            f"'{directory}' holds no .safetensors file. Policies are read from safetensors only: convert the weights"
            " with model.save_pretrained(directory) of transformers."
        )
    options = {} if settings.attention is None else {"attn_implementation": settings.attention}
    try:
        model = transformers.AutoModelForCausalLM.from_pretrained(
            directory,
            dtype=getattr(torch, settings.precision),
            use_safetensors=True,
            trust_remote_code=settings.trust_remote_code,
            **options,
        )
    except _of_loading() as error:
        raise InputError(f"'{directory}' cannot be loaded as a causal language model: {error}") from error
    model = model.to(device).eval()
    fit_threads(model)
    return model


def _of_loading() -> tuple[type[Exception], ...]:
    """What transformers raises for a configuration or weights that are not those of a model it knows."""
    own = _import("safetensors").SafetensorError, _import("huggingface_hub").errors.StrictDataclassError
    return (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError, *own)


def load_tokenizer(policy: str | Path, *, trust_remote_code: bool = False) -> Any:
    """The tokenizer of a policy."""
    transformers = _import("transformers")
    directory = model_directory(policy)
    try:
        return transformers.AutoTokenizer.from_pretrained(directory, trust_remote_code=trust_remote_code)
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"'{directory}' holds no tokenizer that transformers can load: {error}") from error


def model_directory(policy: str | Path) -> Path:
    """The directory with ``config.json`` of a policy; for a hub name, weights and tokenizer are fetched first."""
    path = Path(policy)
    for directory in (path / "model", path):
        if (directory / "config.json").is_file():
            return directory
        if (directory / "adapter_config.json").is_file():
            raise InputError(f"'{directory}' is an adapter without its base model. Merge it and save the whole model.")
    if path.exists():
        raise InputError(
            f"'{path}' is no policy: neither 'model/config.json' nor 'config.json' is in it. Expected a policy"
            " directory as dialrl writes it, or a directory saved by transformers."
        )
    if not is_hub_name(policy):
        raise MissingInputError(f"Policy '{policy}' does not exist. Give a policy directory or a model's hub name.")
    return _fetch(str(policy))


def _fetch(name: str) -> Path:
    hub = _import("huggingface_hub")
    try:
        return Path(hub.snapshot_download(name, allow_patterns=_HUB_FILES))
    except (OSError, ValueError, hub.errors.HfHubHTTPError) as error:
        first = str(error).strip().partition("\n")[0].removeprefix("Got: ")
        raise MissingInputError(
            f"Policy '{name}' is no directory here, and no model of that name could be fetched ({first}). Give the path"
            f" of a policy directory, or fetch the model where there is a network: hf download {name}"
        ) from error


def _import(module: str) -> Any:
    from importlib import import_module

    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise missing_extra("train", module) from error
