"""Opens the trainer that the options ask for: in this process, or spread over several that it starts."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, Self

from dialrl.errors import UsageError
from dialrl.model.torchrun import started
from dialrl.progress import SILENT, Progress
from dialrl.update.config import UpdateConfig
from dialrl.update.policy_directory import Manifest
from dialrl.update.statistics import FileMetrics


class PolicyTrainer(Protocol):
    """A policy being trained, wherever that happens; each method as in ``Trainer``."""

    @property
    def is_first(self) -> bool: ...

    def about(self) -> dict[str, str]: ...

    def step_file(self, source: Path | Sequence[Path], progress: Progress = SILENT) -> FileMetrics: ...

    def save(self, output: Path, *, overwrite: bool = False, with_trainer_state: bool = True) -> Manifest: ...

    def adopt(self, policy: Path) -> None: ...

    def cancel(self) -> None: ...

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


def open_trainer(policy: Path | str, config: UpdateConfig, total_steps: int | None = None) -> PolicyTrainer:
    """A trainer for ``policy``; with ``config.processes`` above 1 they are started, unless torchrun has done so.

    Raises UsageError when torchrun started another number than the options ask for, and what ``Trainer.open`` raises.
    """
    count = started().count
    if config.processes > 1 and count == 1:
        from dialrl.update.processes import TrainerProcesses

        return TrainerProcesses.open(policy, config, total_steps)
    if config.processes not in (1, count):
        raise UsageError(f"torchrun started {count} processes, processes is {config.processes}. Leave one of them out.")
    from dialrl.update.trainer import Trainer

    return Trainer.open(policy, config, total_steps)
