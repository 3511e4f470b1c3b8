"""One of several processes that train a policy together, as told over a channel; started by ``processes``.

    torchrun --nproc-per-node N -m dialrl.update.worker SOCKET

All make the same steps on the same files; what each does of the work follows from its number. An error goes to the
other side of the channel as kind and sentence, and ends the process.
"""

import os
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

from dialrl.progress import SILENT, Progress
from dialrl.update.channel import Channel, commands_or_end
from dialrl.update.config import UpdateConfig


class ChannelProgress:
    """A Progress that is drawn at the other side of the channel."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def start(self, task: str, total: int | None = None, unit: str = "") -> None:
        self._channel.send({"progress": "start", "arguments": [task, total, unit], "figures": {}})

    def advance(self, amount: int = 1, **figures: float) -> None:
        self._channel.send({"progress": "advance", "arguments": [amount], "figures": figures})

    def message(self, text: str) -> None:
        self._channel.send({"progress": "message", "arguments": [text], "figures": {}})


def report_errors(channel: Channel) -> None:
    """From here on an error that ends this process is told over ``channel``."""

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        lines = traceback.format_exception(kind, error, trace)
        channel.send({"error": kind.__name__, "message": str(error), "trace": "".join(lines)})
        os._exit(1)  # at once: the usual way out waits for processes that wait for this one

    sys.excepthook = hook


class Worker:
    """Carries out commands; ``progress`` goes to the other side from the first process only."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._trainer: Any = None

    def carry_out(self, command: str, options: Mapping[str, Any]) -> Any:
        """The answer to one command."""
        known: dict[str, Callable[..., Any]] = {
            "open": self._open, "step": self._step, "save": self._save, "adopt": self._adopt,
        }  # fmt: skip
        return known[command](**options)

    def _open(self, policy: str, config: Mapping[str, Any], total_steps: int | None) -> Any:
        from dialrl.update.trainer import Trainer

        self._trainer = Trainer.open(policy, UpdateConfig(**config), total_steps)
        return self._trainer.about()

    def _step(self, files: list[str]) -> Any:
        return asdict(self._trainer.step_file([Path(file) for file in files], self._progress))

    def _save(self, output: str, overwrite: bool, with_trainer_state: bool) -> None:
        self._trainer.save(Path(output), overwrite=overwrite, with_trainer_state=with_trainer_state)

    def _adopt(self, policy: str) -> None:
        self._trainer.adopt(Path(policy))


def main(place: Path) -> None:
    """Serve the channel at ``place`` until it is closed."""
    rank = int(os.environ["RANK"])
    channel = Channel.connect(place)
    report_errors(channel)
    commands = commands_or_end(channel)
    channel.send({"rank": rank, "pid": os.getpid()})
    worker = Worker(ChannelProgress(channel) if rank == 0 else SILENT)
    while True:
        message = commands.get()
        if message["do"] == "end":
            return
        channel.send({"answer": worker.carry_out(message["do"], message["options"])})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
