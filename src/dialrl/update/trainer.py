"""A policy being trained: opened from a directory, stepped over advantage files, saved as a new directory.

A trainer that stays up and a chain of ``open, step_file, save`` give the same weights, bit for bit on CPU: everything a
step depends on is in the saved directory (weights and moments in full precision, the step) or follows from it (learning
rate, order of dialogues). Not here: the command, its refusals and its summary (``stage``).
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import torch

from dialrl.errors import InputError
from dialrl.model.device import checked_device
from dialrl.model.digest import policy_digest
from dialrl.model.distributed import gathered, local_device, processes, wait_for_all
from dialrl.model.find import find_policy
from dialrl.model.loading import LoadingSettings, load_model, model_directory
from dialrl.progress import SILENT, Progress
from dialrl.trajectory.atomic import temporary_sibling
from dialrl.trajectory.lineage import InputFile, package_versions
from dialrl.trajectory.reader import TrajectoryFile
from dialrl.update.adapter import (
    adapter_weights,
    add_adapter,
    base_of,
    load_adapter,
    merged_weights,
    save_adapter,
)
from dialrl.update.config import UpdateConfig
from dialrl.update.data import TrainingData, read_training_data
from dialrl.update.finite import check_finite
from dialrl.update.learner import Learner, Row
from dialrl.update.optimizer import moments_of, restore_moments
from dialrl.update.outcomes import first_figures
from dialrl.update.plan import no_signal_sentence, plan_steps
from dialrl.update.policy_directory import (
    Manifest,
    atomic_directory,
    checked_digest,
    copy_model,
    read_manifest,
    save_model,
    write_metrics,
)
from dialrl.update.schedule import learning_rate
from dialrl.update.sequences import Limits
from dialrl.update.statistics import FileMetrics
from dialrl.update.trainer_state import (
    TrainerProgress,
    TrainerState,
    master_weights,
    read_trainer_state,
    restore_master_weights,
    write_progress,
    write_shards,
)

ON_POLICY_MISMATCH = 1e-3


class Trainer:
    """Trains one policy. ``step``: updates done in the run; ``total_steps``: of the whole run, for the schedule.

    ``source``: directory of the policy's model files, whose tokenizer goes along; ``digest``: of the policy as last
    opened or saved, the parent of the next one; ``base``: directory of the frozen model that an adapter belongs to.
    """

    def __init__(
        self,
        learner: Learner,
        source: Path,
        digest: str,
        *,
        total_steps: int | None = None,
        state: TrainerState | None = None,
        base: Path | None = None,
    ) -> None:
        self.learner, self.config, self.source, self.digest = learner, learner.config, source, digest
        state = state or TrainerState()
        self.step = state.step
        self.total_steps = total_steps
        self._base = base
        self._restore(state)
        self._saved_at = learner.steps
        self._source_is_rounded = bool(state.master)
        self._inputs: list[InputFile] = []
        self._metrics: list[FileMetrics] = []

    @classmethod
    def open(cls, policy: Path | str, config: UpdateConfig, total_steps: int | None = None) -> Self:
        """A trainer for the policy in a directory, continuing the trainer state beside it.

        ``fresh_optimizer``: of that state only the place in the run, which the policy's manifest says too.

        Raises InputError for a directory that is no policy, was changed since it was written, or lacks its state.
        """
        directory = model_directory(policy)
        digest = checked_digest(policy)
        state = _fresh_state(Path(policy)) if config.fresh_optimizer else _stored_state(Path(policy))
        if total_steps is None and state is not None:
            total_steps = state.total_steps
        config.check_total_steps(total_steps)
        device = checked_device(local_device(_device(config.device)))
        settings = LoadingSettings(device=device if processes().count == 1 else "cpu")  # shards go to the device
        frozen = _reference_of(config)
        reference = None if frozen is None else load_model(frozen, settings)
        model, base = _load_trained(Path(policy), directory, config, settings)
        learner = Learner(model, config, reference, torch.device(device))
        return cls(learner, directory, digest, total_steps=total_steps, state=state, base=base)

    def _restore(self, state: TrainerState) -> None:
        where = f"The trainer state beside '{self.source}'"
        restore_master_weights(self.learner.model, state.master, where=where)
        restore_moments(self.learner.optimizer, self.learner.model, state.moments, where=where)
        self.learner.steps = state.optimizer_steps

    @property
    def is_first(self) -> bool:
        """Whether this process is the one that speaks for all."""
        return self.learner.group.rank == 0

    def about(self) -> dict[str, str]:
        """The device, the layout and why it was chosen."""
        return {"device": str(self.learner.model.device), "layout": self.learner.layout.sentence}

    def cancel(self) -> None:
        """Let the update that is under way (in another thread) end before its next forward pass, with a HaltError."""
        self.learner.stop.set()

    def close(self) -> None:
        """Nothing to end: the trainer lives in this process."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def limits(self) -> Limits:
        """Longest training sequence: the model's own limit, or a lower one from the options."""
        own = getattr(self.learner.model.config, "max_position_embeddings", None)
        known = [limit for limit in (own, self.config.max_sequence_tokens) if limit]
        return Limits(min(known, default=2**31), self.config.overlong)

    def step_file(self, source: TrajectoryFile | Path | Sequence[Path], progress: Progress = SILENT) -> FileMetrics:
        """Train on one advantage file: one update of the run.

        Raises InputError for a file that cannot be trained, NumericalError when a trained place is not finite; after
        either this trainer must not be saved, and the directory it was opened from is untouched.
        """
        file = source if isinstance(source, TrajectoryFile) else TrajectoryFile.open(source)
        data = read_training_data(file, self.config, self.limits, step=self.step)
        metrics = self.step_data(data, progress)
        self._inputs += file.input_files
        return metrics

    def step_data(self, data: TrainingData, progress: Progress = SILENT) -> FileMetrics:
        """Train on data in memory: one update of the run, all its epochs and optimiser steps."""
        data.check_vocabulary(self.learner.model.get_output_embeddings().weight.shape[0])
        if self.learner.reference is not None:
            data.check_vocabulary(self.learner.reference.get_input_embeddings().weight.shape[0], whose="reference")
        planned = plan_steps(data, self.config, step=self.step)
        progress.start("update", total=len(planned), unit="optimiser steps")
        rows: list[Row] = []
        for row in self.learner.train(data, planned, learning_rate(self.config, self.step, self.total_steps)):
            rows.append({"step": self.step, **row})
            progress.advance(1, loss=row["loss"], gradient_norm=row["gradient_norm"])
        metrics = FileMetrics(
            rows=rows,
            counts={**data.counts, "trained_tokens": data.trained_tokens, "optimizer_steps": len(rows)},
            spreads=data.spreads,
            overall=first_figures(data, self.learner.first_scores),
            warnings=tuple(self._warnings(data, rows)),
            no_signal=None if rows else no_signal_sentence(data),
        )
        self.step += 1
        self._metrics.append(metrics)
        return metrics

    def _warnings(self, data: TrainingData, rows: Sequence[Row]) -> Iterator[str]:
        if self.learner.memory_note and self.config.gradient_checkpointing == "auto":
            yield self.learner.memory_note
        if without := data.counts.get("dialogues_without_outcome"):
            yield f"{without} dialogues have no outcome and were left out."
        if clipped := data.counts.get("outcomes_clipped"):
            yield f"{clipped} outcomes lie outside outcome_range and count as its ends."
        if not self.config.is_policy_gradient or not rows:
            return
        others = [digest for digest in data.policy_digests if digest != self.digest]
        if others:
            if self.config.max_lag:
                return  # an older policy is expected; how far it is off stands in the mismatch
            corrected = "not corrected" if self.config.old_logprobs == "sampler" else "corrected up to the cap"
            yield (
                f"The file was rolled out by policy {' and '.join(others)}, this is {self.digest}: the difference is"
                f" {corrected}."
            )
        elif self.config.precision == "fp32" and (rows[0]["mismatch_mean"] or 0.0) > ON_POLICY_MISMATCH:
            yield (
                f"On-policy log-probs of sampler and trainer differ by {rows[0]['mismatch_mean']:.2g} in the mean; less"
                f" than {ON_POLICY_MISMATCH} is expected. Check the engine's precision, the temperature, the template."
            )

    def save(self, output: Path, *, overwrite: bool = False, with_trainer_state: bool = True) -> Manifest:
        """Write the policy as a new directory, complete or not at all; its parent is the policy last opened or saved.

        Without any optimiser step since then the model files are copied: same tensors, same digest.
        """
        group, weights, adapter = self.learner.group, self._weights(), self._adapter()
        if self.learner.steps != self._saved_at:
            self._check_finite(weights)
        if group.rank == 0:
            with atomic_directory(output, overwrite=overwrite) as directory:
                if with_trainer_state:
                    self._write_state(directory / "trainer")
                self._write(directory, weights, adapter, with_trainer_state=with_trainer_state)
        elif with_trainer_state:
            self._write_state(temporary_sibling(output) / "trainer")
        wait_for_all(group)
        manifest = read_manifest(output)
        if manifest is None:
            raise InputError(f"'{output}' was written by another process and cannot be read here; is the disk shared?")
        self._saved_as(output, manifest)
        return manifest

    def _write(
        self,
        directory: Path,
        weights: Mapping[str, torch.Tensor] | None,
        adapter: Mapping[str, torch.Tensor],
        *,
        with_trainer_state: bool,
    ) -> None:
        self._save_model(directory / "model", weights)
        if self._base is not None:
            save_adapter(adapter, self.config, self._base, directory)
        write_metrics([row for metrics in self._metrics for row in metrics.rows], directory)
        self._manifest(policy_digest(directory / "model"), with_trainer_state).write(directory)

    def _write_state(self, directory: Path) -> None:
        """Every process writes the rows it holds; what is whole, and ``trainer.json``, come from the first."""
        model, group = self.learner.model, self.learner.group
        if group.rank == 0:
            directory.mkdir()
        wait_for_all(group)
        write_shards("moments", moments_of(self.learner.optimizer, model), directory, group)
        if self._is_rounded and self._base is None:
            write_shards("master", master_weights(model), directory, group)
        wait_for_all(group)
        if group.rank == 0:
            write_progress(self._progress(), self.config, directory)

    def adopt(self, policy: Path) -> None:
        """Take ``policy``, written earlier from these very weights, as the save of this state (a resumed run's replay).

        Raises InputError when its manifest names another number of updates than this trainer has made.
        """
        manifest = read_manifest(policy)
        if manifest is None or manifest.step != self.step:
            found = "no policy" if manifest is None else f"the policy of update {manifest.step}"
            raise InputError(f"'{policy}' is {found}; expected that of update {self.step}. Remove it and resume again.")
        self._saved_as(policy, manifest)

    @property
    def _is_rounded(self) -> bool:
        """Whether the model as it would be saved now holds rounded weights: its files may be copies of rounded ones."""
        copied = self.learner.steps == self._saved_at and self._source_is_rounded
        return copied or self.config.precision == "bf16"

    def _saved_as(self, policy: Path, manifest: Manifest) -> None:
        self._source_is_rounded = self._is_rounded
        self.source, self.digest, self._saved_at = policy / "model", manifest.digest, self.learner.steps
        self._inputs, self._metrics = [], []

    def _weights(self) -> Mapping[str, torch.Tensor] | None:
        """Weights to write where they are not the model's own parameters: merged, or gathered from all processes."""
        if self.learner.steps == self._saved_at:
            return None
        model, group = self.learner.model, self.learner.group
        if self._base is not None:
            return merged_weights(model, group)
        return gathered(model.named_parameters(), group) if group.count > 1 else None

    def _check_finite(self, weights: Mapping[str, torch.Tensor] | None) -> None:
        """The model's own parameters, and what an adapter makes of them, which only the first process has."""
        own = self.learner.model.named_parameters()
        made = weights.items() if weights is not None and self._base is not None else ()
        is_rounded = self.config.precision == "bf16"
        check_finite([*own, *made], self.learner.group, rounded=is_rounded, step=self.learner.steps)

    def _adapter(self) -> Mapping[str, torch.Tensor]:
        """The adapter's weights, whole, in the first process; empty without one."""
        if self._base is None:
            return {}
        return gathered(adapter_weights(self.learner.model).items(), self.learner.group)

    def _save_model(self, directory: Path, weights: Mapping[str, torch.Tensor] | None) -> None:
        if self.learner.steps == self._saved_at:
            copy_model(self.source, directory)
            return
        rounded = self.config.precision == "bf16"
        save_model(self.learner.model, self.source, directory, rounded=rounded, weights=weights)

    def _progress(self) -> TrainerProgress:
        return TrainerProgress(
            step=self.step,
            optimizer_steps=self.learner.steps,
            total_steps=self.total_steps,
            cursor=self._inputs[-1].digest if self._inputs else None,
        )

    def _manifest(self, digest: str, with_trainer_state: bool) -> Manifest:
        return Manifest(
            digest=digest,
            parent=self.digest,
            step=self.step,
            optimizer_steps=self.learner.steps,
            total_steps=self.total_steps,
            trainer_state=with_trainer_state,
            inputs=tuple(self._inputs),
            options=manifest_options(self.config),
            counts=dict(self._metrics[-1].counts) if self._metrics else {},
            versions=package_versions("dialrl", "torch", "transformers"),
        )


def manifest_options(config: UpdateConfig) -> dict[str, Any]:
    """The semantic options, the reference named by its digest and not by where it lies."""
    options = config.semantic_values()
    if (reference := _reference_of(config)) is not None:
        options["reference"] = checked_digest(reference)
    return options


def _reference_of(config: UpdateConfig) -> str | Path | None:
    """The policy that the loss compares with, if it does: a directory, or what a name stands for."""
    return find_policy(str(config.reference)) if config.uses_reference and config.reference is not None else None


def _load_trained(
    policy: Path, directory: Path, config: UpdateConfig, settings: LoadingSettings
) -> tuple[Any, Path | None]:
    """The model to train and, with an adapter on it, the directory of its base."""
    if config.lora_rank is None:
        return load_model(directory, settings), None
    base = base_of(policy)
    model = load_model(base or directory, settings)
    add_adapter(model, config)
    if base is not None:
        load_adapter(model, policy, config)
    return model, base or directory


def _stored_state(policy: Path) -> TrainerState | None:
    state, manifest = read_trainer_state(policy), read_manifest(policy)
    if state is None and manifest is not None and manifest.step > 0:
        raise InputError(
            f"'{policy}' is the result of {manifest.step} updates but holds no trainer/ (it was saved without)."
            " Continue from a policy that has one, or start the optimiser afresh with --fresh-optimizer."
        )
    return state


def _fresh_state(policy: Path) -> TrainerState:
    """A fresh optimiser in the same run: its step and total stay, which the schedule and ``max_lag`` count by."""
    manifest = read_manifest(policy)
    if manifest is None:
        return TrainerState()
    return TrainerState(manifest.step, manifest.optimizer_steps, manifest.total_steps)


def _device(name: str) -> str:
    return name if name != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
