"""A trainer spread over several processes of this machine, which torchrun starts and which stay up between updates.

``TrainerProcesses`` is used like ``Trainer``; each process has a share of the passes and of the optimiser. When one
fails, its own error is raised here and the others end; when this process ends, however, so do they. Not here: what a
process does (``worker``); several machines, where torchrun is started by hand (docs/stages/update.md).
"""

import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from dialrl import errors
from dialrl.concurrency import usable_cores
from dialrl.errors import DialrlError, InputError, RunError, UsageError
from dialrl.model.loading import model_directory
from dialrl.progress import SILENT, Progress
from dialrl.trajectory.atomic import folder_prepared_alone
from dialrl.update.channel import Channel, Message, listening
from dialrl.update.config import UpdateConfig
from dialrl.update.policy_directory import Manifest, read_manifest
from dialrl.update.statistics import FileMetrics

_SECONDS_FOR_OTHERS_TO_SPEAK = 2.0
_SECONDS_TO_END = 10.0
_LOG_LINES = 15
_USUAL_TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 (a folder of our own is made in it)
_LONGEST_PARENT_BYTES = 75  # of 104 at least for a socket: "/dialrl-12345678/socket" and some room
_OF_THE_CONNECTION = ("gloo", "nccl", "connection reset", "connection closed")


class TrainerProcesses:
    """``count`` processes training one policy; ``pids`` by their number, once they are connected."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._folder = short_folder()
        self._heard: queue.Queue[tuple[int, Message | None]] = queue.Queue()
        self._channels: list[Channel] = []
        self._about: dict[str, str] = {}
        self.pids: dict[int, int] = {}
        self._listener = listening(self._folder / "socket")
        with (self._folder / "log").open("wb") as log:
            self._torchrun = subprocess.Popen(  # noqa: S603 (nothing in it comes from outside)
                self._command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._environment(),
                start_new_session=True,  # an interruption reaches this process, which then ends the others
            )  # fmt: skip

    @classmethod
    def open(cls, policy: Path | str, config: UpdateConfig, total_steps: int | None = None) -> "TrainerProcesses":
        """``config.processes`` processes with the policy opened in each. Raises what ``Trainer.open`` raises."""
        model_directory(policy)  # what is no policy at all is refused before anything is started
        trainer = cls(config.processes)
        with ExitStack() as undo:
            undo.callback(trainer.close)
            trainer._connect()
            options = {"policy": str(policy), "config": config.model_dump(mode="json"), "total_steps": total_steps}
            trainer._about = trainer._ask("open", options)
            undo.pop_all()
        return trainer

    def _command(self) -> list[str]:
        program = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(self.count)]
        logs = [
            "--log-dir",
            str(self._folder / "logs"),
        ]  # else a folder of its own, which an interruption leaves behind
        return [*program, *logs, "-m", "dialrl.update.worker", str(self._folder / "socket")]

    def _environment(self) -> dict[str, str]:
        threads = str(max(1, usable_cores() // self.count))
        return {"OMP_NUM_THREADS": threads, **os.environ}

    def _connect(self) -> None:
        """Wait until every process has said which it is, listening to each from then on."""
        self._listener.settimeout(0.2)
        while len(self._channels) < self.count:
            try:
                connection, _ = self._listener.accept()
            except TimeoutError:
                if self._torchrun.poll() is not None:
                    raise RunError(f"The processes of the update could not be started.{self._log()}") from None
                continue
            connection.setblocking(True)
            channel = Channel(connection)
            self._channels.append(channel)
            threading.Thread(target=self._listen, args=(channel,), daemon=True).start()

    def _listen(self, channel: Channel) -> None:
        rank = -1
        for message in channel.messages():
            rank = message.get("rank", rank)
            if "pid" in message:
                self.pids[rank] = message["pid"]
            self._heard.put((rank, message))
        self._heard.put((rank, None))

    def about(self) -> dict[str, str]:
        """Device and layout, as ``Trainer.about`` says them."""
        return {**self._about, "processes": str(self.count)}

    @property
    def is_first(self) -> bool:
        return True

    def step_file(self, source: Path | Sequence[Path], progress: Progress = SILENT) -> FileMetrics:
        """``Trainer.step_file`` in all processes; the figures are those of the whole step."""
        files = [source] if isinstance(source, Path) else source
        answer = self._ask("step", {"files": [str(file) for file in files]}, progress)
        return FileMetrics(**{**answer, "warnings": tuple(answer["warnings"])})

    def save(self, output: Path, *, overwrite: bool = False, with_trainer_state: bool = True) -> Manifest:
        """``Trainer.save``: each process writes its share of the trainer state, the first the model."""
        options = {"output": str(output), "overwrite": overwrite, "with_trainer_state": with_trainer_state}
        with ExitStack() as undo:
            undo.callback(self._undo_save, output)
            self._ask("save", options)
            undo.pop_all()
        manifest = read_manifest(output)
        if manifest is None:
            raise InputError(f"'{output}' was just written and is not there; was it removed by another process?")
        return manifest

    def _undo_save(self, output: Path) -> None:
        """Remove what the processes have prepared: an interruption ends them before they can."""
        self.close()
        with suppress(UsageError, OSError), folder_prepared_alone(output):
            pass

    def adopt(self, policy: Path) -> None:
        """``Trainer.adopt``."""
        self._ask("adopt", {"policy": str(policy)})

    def cancel(self) -> None:
        """End the processes at once; whoever waits for an answer gets an error."""
        for channel in self._channels:
            channel.close()
        self._torchrun.terminate()

    def close(self) -> None:
        """End the processes and wait until they are gone."""
        self.cancel()
        try:
            with suppress(subprocess.TimeoutExpired):
                self._torchrun.wait(_SECONDS_TO_END)
        finally:  # also when it is the waiting that is interrupted; the others end with the channel
            self._torchrun.kill()
            self._torchrun.wait()
            self._listener.close()
            shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> "TrainerProcesses":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, command: str, options: Message, progress: Progress = SILENT) -> Any:
        """The first process's answer, once all have answered. Raises the error of a process that failed."""
        for channel in self._channels:
            try:
                channel.send({"do": command, "options": options})
            except OSError:  # that process is gone: the listener hears so, and says why
                continue
        answers: dict[int, Any] = {}
        while len(answers) < self.count:
            rank, message = self._heard.get()
            if message is None or "error" in message:
                raise self._failure(rank, message)
            if "progress" in message:
                getattr(progress, message["progress"])(*message["arguments"], **message["figures"])
            elif "answer" in message:
                answers[rank] = message["answer"]
        return answers[0]

    def _failure(self, rank: int, message: Message | None) -> DialrlError:
        """The error to raise: of all that processes say now, one in the project's own words, else the first cause.

        A process that only lost its partner is no cause: then the one that ended without a word is.
        """
        said = [(rank, message), *self._said_soon()]
        known = [(rank, one) for rank, one in said if one is not None and _kind(one) is not None]
        spoke = {rank for rank, one in said if one is not None}
        causes = [(rank, one) for rank, one in said if (rank not in spoke if one is None else not _lost_partner(one))]
        rank, first = (known or causes or said)[0]
        where = f"process {rank + 1} of {self.count}" if rank >= 0 else f"one of {self.count} processes"
        self.cancel()
        if first is None:
            return RunError(
                f"Update: {where} ended without saying why. If it was killed, it may have been for its memory: see"
                f" --dry-run for an estimate.{self._log()}"
            )
        kind = _kind(first)
        if kind is None:
            return RunError(f"Update, {where}: {first['error']}: {first['message']}\n{first['trace']}")
        return kind(f"{first['message']} (in {where})")

    def _said_soon(self) -> list[tuple[int, Message | None]]:
        """What other processes say of the same failure; one that only lost its partner says so later."""
        said: list[tuple[int, Message | None]] = []
        try:
            while len(said) < 2 * self.count:  # each its error and its end
                rank, message = self._heard.get(timeout=_SECONDS_FOR_OTHERS_TO_SPEAK)
                if message is None or "error" in message:
                    said.append((rank, message))
        except queue.Empty:
            pass
        return said

    def _log(self) -> str:
        lines = (self._folder / "log").read_text(encoding="utf-8", errors="replace").splitlines()[-_LOG_LINES:]
        return "" if not lines else "\nThe last lines they wrote:\n" + "\n".join(lines)


def short_folder() -> Path:
    """A temporary folder of this user in which a socket can lie: its whole name may have about a hundred bytes.

    Where TMPDIR is too long for that, one of the usual places. Raises UsageError when none will do.
    """
    for parent in (tempfile.gettempdir(), *_USUAL_TEMPORARY):
        if len(os.fsencode(parent)) <= _LONGEST_PARENT_BYTES:
            with suppress(OSError):
                return Path(tempfile.mkdtemp(prefix="dialrl-", dir=parent))
    raise UsageError(
        f"No temporary folder can hold a socket: '{tempfile.gettempdir()}' is longer than {_LONGEST_PARENT_BYTES} bytes"
        f" or cannot be written, nor can {', '.join(_USUAL_TEMPORARY)}. Set TMPDIR to a short one."
    )


def _lost_partner(message: Message) -> bool:
    """Whether an error only says that another process is gone."""
    return any(word in message["message"].lower() for word in _OF_THE_CONNECTION)


def _kind(message: Message) -> type[DialrlError] | None:
    """The project's own error of that name."""
    kind = getattr(errors, message["error"], None)
    return kind if isinstance(kind, type) and issubclass(kind, DialrlError) else None
