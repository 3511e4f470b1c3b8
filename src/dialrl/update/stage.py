"""The stage ``update`` as one function: advantage files and a policy in, a new policy directory and a summary out."""

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path

from dialrl.config import differing_keys
from dialrl.errors import UsageError
from dialrl.model.loading import model_directory
from dialrl.model.torchrun import started
from dialrl.progress import SILENT, Progress
from dialrl.summary import StageSummary
from dialrl.trajectory.atomic import made_by_one
from dialrl.trajectory.lineage import complete_run_file, write_run_file
from dialrl.trajectory.reader import TrajectoryFile
from dialrl.update.adapter import base_of
from dialrl.update.config import UpdateConfig
from dialrl.update.policy_directory import MANIFEST, METRICS, Manifest, checked_digest, read_manifest, refuse_output
from dialrl.update.statistics import FileMetrics
from dialrl.update.trainer import manifest_options
from dialrl.update.trainers import open_trainer


def update_policy(
    inputs: Path | Sequence[Path],
    policy: Path | str,
    output: Path,
    config: UpdateConfig,
    *,
    total_steps: int | None = None,
    overwrite: bool = False,
    resume: bool = False,
    progress: Progress = SILENT,
) -> StageSummary:
    """One update of ``policy`` on advantage files, written as the policy directory ``output``.

    ``total_steps``: updates of the whole run, for the schedule (default: as the policy's trainer state says).
    ``resume``: a complete ``output`` made from the same inputs, policy and options is left as it is; an interrupted one
    is made again from the start, with the same result. Without a learning signal the output has the same weights and
    the summary says so. Raises the errors of ``Trainer`` and OutputExistsError.
    """
    source = TrajectoryFile.open(inputs)
    done = _finished(output, source, policy, config, total_steps, overwrite=overwrite) if resume else None
    if done is not None:
        complete_run_file(output)
        return StageSummary("update", output, dict(done.counts), _identity(done), ("Complete already; left as it is.",))
    refuse_output(output, overwrite=overwrite)
    refuse_what_is_needed(output, source, policy, config)
    began = time.perf_counter()
    with _made_here(output), open_trainer(policy, config, total_steps) as trainer:
        metrics = trainer.step_file(inputs if isinstance(inputs, Path) else list(inputs), progress)
        manifest = trainer.save(output, overwrite=overwrite)
        about = trainer.about()
        if trainer.is_first:
            write_run_file(output, seconds=time.perf_counter() - began, device=about["device"])
    return summary_of(output, metrics, manifest, about)


def summary_of(output: Path, metrics: FileMetrics, manifest: Manifest, about: Mapping[str, str]) -> StageSummary:
    """What an update says when it is done; a file without signal says so first. ``about``: device, layout."""
    signal = () if metrics.no_signal is None else (metrics.no_signal,)
    figures = {**_identity(manifest), **metrics.figures(), **about, "metrics": str(output / METRICS)}
    return StageSummary("update", output, metrics.counts, figures, (*signal, *metrics.warnings))


def _identity(manifest: Manifest) -> dict[str, str | int | None]:
    return {"policy_digest": manifest.digest, "parent_digest": manifest.parent, "step": manifest.step}


def _made_here(output: Path) -> AbstractContextManager[None]:
    """Holds the output; where torchrun started several processes with one output, the first does so for all."""
    return made_by_one(output) if started().rank == 0 else nullcontext()


def refuse_what_is_needed(output: Path, source: TrajectoryFile, policy: Path | str, config: UpdateConfig) -> None:
    """Raise UsageError for an output in whose place something lies that this or the next update reads.

    The policy itself may be replaced; the base of its adapter may not, since the next update starts from it.
    """
    needed = {f"the input '{shard.path}'": shard.path for shard in source.shards}
    if config.lora_rank is not None and Path(policy).is_dir():
        needed["the base model that the adapter belongs to"] = base_of(Path(policy)) or model_directory(policy)
    for what, place in needed.items():
        if output.resolve() in (place.resolve(), *place.resolve().parents):
            raise UsageError(f"The output '{output}' would replace {what}. Name another output.")


def _finished(
    output: Path,
    source: TrajectoryFile,
    policy: Path | str,
    config: UpdateConfig,
    total_steps: int | None,
    *,
    overwrite: bool,
) -> Manifest | None:
    """The manifest of a complete output of the same work; None when there is none yet.

    Raises UsageError listing what differs.
    """
    manifest = read_manifest(output) if (output / MANIFEST).is_file() else None
    if manifest is None:
        return None
    differing = differing_keys(manifest.options, manifest_options(config))
    if manifest.parent != (parent := checked_digest(policy)):
        differing.append(f"policy: {manifest.parent} -> {parent}")
    if [asdict(one) for one in manifest.inputs] != [asdict(one) for one in source.input_files]:
        differing.append("inputs: other files, or files with other content")
    if total_steps not in (None, manifest.total_steps):
        differing.append(f"total_steps: {manifest.total_steps} -> {total_steps}")
    if differing and overwrite:
        return None
    if differing:
        raise UsageError(f"'{output}' was made with other settings, so it is not resumed: " + "; ".join(differing))
    return manifest
