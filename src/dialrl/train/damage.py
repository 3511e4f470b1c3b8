"""Looks for damage in a run that is to go on: files cut short, changed or half lost since they were written.

Resume passes finished files by, so without this nobody would notice. Trajectory files are opened, which reads their
footers and checks the digests by which each names the one before it; the last one's digest stands in its policy. Of
weights only the headers are read. Not here: what a stage checks of its own inputs.
"""

import json
from collections.abc import Iterator
from pathlib import Path

from dialrl.errors import DialrlError, InputError
from dialrl.train.run_directory import IterationFolder, RunDirectory
from dialrl.trajectory.reader import TrajectoryFile, file_digest
from dialrl.update.policy_directory import read_manifest


def check_damage(run: RunDirectory) -> None:
    """Raise InputError naming the first damaged file of ``run``, and what to do."""
    for folder in (run.base, *run.iterations()):
        for file in _files(folder):
            try:
                _check(file, folder)
            except (DialrlError, ValueError) as error:
                raise InputError(f"The run '{run.path}' is damaged in '{file}': {error} {_remedy(folder)}") from error


def _remedy(folder: IterationFolder) -> str:
    if folder.number < 0:
        return f"Put the file back, or remove the folder '{folder.path}' and resume: the evaluation is made again."
    return (
        f"Put the file back, or remove '{folder.path}' and the folders of later iterations and resume: they are made"
        " again."
    )


def _files(folder: IterationFolder) -> Iterator[Path]:
    """What is checked in a folder: the furthest trajectory file of each chain, records, weights of policies."""
    chain = (folder.advantage, folder.returns, folder.implicit, folder.kl, folder.judge, folder.rollout)
    evaluated = [folder.path / "evaluation" / name for name in ("judge.parquet", "rollout.parquet")]
    for files in (chain, evaluated, (folder.safety,)):
        yield from [file for file in files if file.is_file()][:1]
    yield from (file for file in (folder.metrics, folder.evaluation, folder.safety_record) if file.is_file())
    for model in (folder.policy, folder.reward_model):
        if model.is_dir():
            yield model / "manifest.json"
            yield from sorted(model.rglob("*.safetensors"))


def _check(file: Path, folder: IterationFolder) -> None:
    if file.suffix == ".parquet":
        TrajectoryFile.open(file)
        if file == folder.advantage:
            _check_advantage(folder)
    elif file.suffix == ".safetensors":
        _check_weights(file)
    else:
        json.loads(file.read_text(encoding="utf-8"))


def _check_advantage(folder: IterationFolder) -> None:
    """The policy that was trained on an advantage file names its digest."""
    manifest = read_manifest(folder.policy) if folder.policy.is_dir() else None
    named = [one.digest for one in manifest.inputs if one.name == folder.advantage.name] if manifest else []
    found = file_digest(folder.advantage)
    if named and found not in named:
        raise InputError(f"it has digest {found}, but the policy beside it was trained on {named[0]}.")


def _check_weights(file: Path) -> None:
    """Raise InputError when a safetensors file is shorter or longer than its header says."""
    size = file.stat().st_size
    with file.open("rb") as opened:
        length = int.from_bytes(opened.read(8), "little")
        header = json.loads(opened.read(length)) if 8 + length <= size else {}
    ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
    if not ends or 8 + length + max(ends) != size:
        raise InputError(f"it has {size} bytes, not those its header tells of.")
