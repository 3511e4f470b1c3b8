"""Policy directories: ``model/``, ``trainer/``, ``metrics.jsonl`` and ``manifest.json``, visible only when complete.

A directory is prepared under a hidden sibling name, flushed to the disk and renamed; the manifest is written last. A
plain directory saved by transformers is a policy too, without manifest or trainer state. No pickle anywhere. Not here:
what stands in ``trainer/`` (``trainer_state``), loading models (``dialrl.model.loading``).
"""

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from dialrl.errors import InputError, OutputExistsError
from dialrl.json_file import Checked, as_record, read_object
from dialrl.model.digest import policy_digest
from dialrl.model.loading import model_directory
from dialrl.model.stored_tensors import system_errors
from dialrl.trajectory.atomic import folder_prepared_alone, publish_folder, refuse_place, sync, writing
from dialrl.trajectory.lineage import InputFile

FORMAT_VERSION = 1
MANIFEST = "manifest.json"
METRICS = "metrics.jsonl"
_REMEDY = "The policy directory is not whole: write the policy again."
_CARRIED_SUFFIXES = (".json", ".jinja", ".txt", ".model", ".tiktoken")
_WRITTEN_BY_SAVING = ("config.json", "model.safetensors.index.json", MANIFEST)


@dataclass(frozen=True)
class Manifest(Checked):
    """What a policy is and where it comes from; holds only what its inputs determine.

    ``step``: calls of update it has seen in its run; ``optimizer_steps``: steps of AdamW. ``inputs``: the advantage
    files of the last update. ``options``: that update's semantic options.
    """

    digest: str
    parent: str | None
    step: int = 0
    optimizer_steps: int = 0
    total_steps: int | None = None
    trainer_state: bool = False
    inputs: Sequence[InputFile] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)

    def write(self, directory: Path) -> None:
        content = {"format": "dialrl policy", "format_version": FORMAT_VERSION, **asdict(self)}
        (directory / MANIFEST).write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def read_manifest(policy: Path) -> Manifest | None:
    """The manifest of a policy directory; None for a plain transformers directory.

    Raises InputError for a directory that has the layout but not the manifest (it was never completed), or whose
    manifest is of another version.
    """
    file = policy / MANIFEST
    if not file.is_file():
        if (policy / "model").is_dir():
            raise InputError(
                f"'{policy}' has a model/ but no {MANIFEST}: it was never completed. Run the update again."
            )
        return None
    content = read_json(file)
    if content.pop("format", None) != "dialrl policy" or content.pop("format_version", None) != FORMAT_VERSION:
        raise InputError(f"'{file}' is no policy manifest of format version {FORMAT_VERSION}. Write the policy again.")
    manifest = as_record(Manifest, content, where=f"'{file}'", remedy=_REMEDY)
    return replace(manifest, inputs=tuple(manifest.inputs))


def checked_digest(policy: Path | str) -> str:
    """The policy's digest. Raises InputError when its weights are not the ones its manifest names."""
    digest, manifest = policy_digest(model_directory(policy)), read_manifest(Path(policy))
    if manifest is not None and manifest.digest != digest:
        raise InputError(
            f"The weights in '{policy}' have digest {digest}, its {MANIFEST} says {manifest.digest}: files were changed"
            " after it was written. Run the update again, or use its model/ directory as a plain policy."
        )
    return digest


@contextmanager
def atomic_directory(output: Path, *, overwrite: bool) -> Iterator[Path]:
    """A new directory to fill; it appears as ``output`` when the block is left without error, else it is removed.

    Raises WriteError when the disk does not take it, UsageError while another process fills it.
    """
    refuse_place(output)
    with writing(output), folder_prepared_alone(output) as temporary:
        refuse_output(output, overwrite=overwrite)
        yield temporary
        _publish(temporary, output)


def refuse_output(output: Path, *, overwrite: bool) -> None:
    """Raise OutputExistsError for an output that may not be replaced: any without ``overwrite``, others' folders."""
    refuse_place(output)
    if not output.exists() or (output.is_dir() and not any(output.iterdir())):
        return
    if not (output / MANIFEST).is_file():
        raise OutputExistsError(
            f"The output '{output}' exists and is no policy directory (no {MANIFEST}), so it is never replaced. Name"
            " another one, or remove it."
        )
    if not overwrite:
        raise OutputExistsError(f"The output '{output}' exists. Name another one, or use --overwrite or --resume.")


def _publish(temporary: Path, output: Path) -> None:
    for path in sorted(temporary.rglob("*"), reverse=True):
        if path.is_file():  # weights are written readable by the owner alone; take the usual mode instead
            shutil.copymode(temporary / MANIFEST, path)
        sync(path)
    sync(temporary)
    publish_folder(temporary, output)


def save_model(
    model: Any,
    source: Path,
    directory: Path,
    *,
    rounded: bool = False,
    weights: Mapping[str, Any] | None = None,
) -> None:
    """Write ``model`` to ``directory``, with tokenizer and templates copied unchanged from the model files ``source``.

    Copying keeps the tokenizer byte for byte: re-saving it could change what text becomes which ids. ``rounded``:
    weights are written in bfloat16. ``weights``: written in place of the model's own parameters.
    """
    if rounded or weights is not None:
        tensors = dict(model.named_parameters()) if weights is None else dict(weights)
        if rounded:
            tensors = {name: tensor.detach().bfloat16() for name, tensor in tensors.items()}
        _save_pretrained(model, directory, state_dict=tensors)
    else:
        _save_pretrained(model, directory)
    if rounded:
        configuration = read_json(directory / "config.json") | {"dtype": "bfloat16"}
        (directory / "config.json").write_text(json.dumps(configuration, indent=2, sort_keys=True), encoding="utf-8")
    carry_files(source, directory)


def _save_pretrained(model: Any, directory: Path, **options: Any) -> None:
    """Weights and configuration alone: generation settings are carried, and so need not suit transformers.

    It would refuse to write again some settings that it reads (a temperature without sampling).
    """
    own = model.generation_config
    model.generation_config = None if own is None else type(own)()
    try:
        with system_errors(directory):
            model.save_pretrained(directory, **options)
    finally:
        model.generation_config = own
    (directory / "generation_config.json").unlink(missing_ok=True)


def carry_files(source: Path, directory: Path) -> None:
    """Copy everything but weights and configuration: tokenizer, chat template, generation settings."""
    for file in sorted(source.iterdir()):
        if file.is_file() and file.suffix in _CARRIED_SUFFIXES and file.name not in _WRITTEN_BY_SAVING:
            shutil.copyfile(file, directory / file.name)
    templates = source / "additional_chat_templates"
    if templates.is_dir():
        shutil.copytree(templates, directory / templates.name, dirs_exist_ok=True)


def copy_model(source: Path, directory: Path) -> None:
    """Copy model files unchanged: same tensors, same digest."""
    directory.mkdir()
    for file in sorted(source.glob("*.safetensors")):
        shutil.copyfile(file, directory / file.name)
    for name in ("config.json", "model.safetensors.index.json"):
        if (source / name).is_file():
            shutil.copyfile(source / name, directory / name)
    carry_files(source, directory)


def write_metrics(rows: Sequence[Mapping[str, Any]], directory: Path) -> None:
    """One JSON object a line, one line an optimiser step."""
    lines = [json.dumps(row, sort_keys=False) + "\n" for row in rows]
    (directory / METRICS).write_text("".join(lines), encoding="utf-8")


def read_json(file: Path) -> dict[str, Any]:
    """The object in a JSON file of a policy directory. Raises InputError when there is none."""
    return read_object(file, remedy=_REMEDY)
