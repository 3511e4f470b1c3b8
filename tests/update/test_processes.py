"""A trainer that starts its own processes gives what one process gives; none outlives it, and errors are told."""

import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.update.test_distributed import nearly_equal
from tests.update.worlds import random_rows, save_policy, tiny_model, turn_row, write_advantages

from dialrl.errors import InputError, NumericalError, RunError, UsageError
from dialrl.update.channel import listening
from dialrl.update.config import UpdateConfig
from dialrl.update.policy_directory import read_manifest
from dialrl.update.processes import TrainerProcesses, short_folder
from dialrl.update.stage import update_policy
from dialrl.update.trainer import Trainer
from dialrl.update.trainers import open_trainer

BASE: dict[str, Any] = {"learning_rate": 1e-2, "max_mismatch": 100.0, "device": "cpu"}
MARK = "DIALRL_TEST_MARK"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("processes")
    save_policy(folder / "p0")
    for number in range(2):
        write_advantages(folder / f"{number}.parquet", random_rows(8, seed=number))
    return folder


@pytest.fixture(scope="module")
def trainer(folder: Path) -> Iterator[Any]:
    """Two processes that have made two updates and saved both."""
    with open_trainer(folder / "p0", UpdateConfig(**BASE, processes=2), 4) as trainer:
        assert isinstance(trainer, TrainerProcesses)
        trainer.metrics = [trainer.step_file(folder / "0.parquet")]  # type: ignore[attr-defined]
        trainer.save(folder / "two-p1", with_trainer_state=False)
        trainer.metrics.append(trainer.step_file([folder / "1.parquet"]))  # type: ignore[attr-defined]
        trainer.save(folder / "two-p2")
        yield trainer


def test_two_processes_give_the_policy_and_the_figures_of_one(trainer: Any, folder: Path) -> None:
    alone = Trainer.open(folder / "p0", UpdateConfig(**BASE), 4)
    metrics = [alone.step_file(folder / f"{number}.parquet") for number in range(2)]
    alone.save(folder / "alone-p2")
    assert nearly_equal(folder / "two-p2", folder / "alone-p2")
    for found, expected in zip(trainer.metrics, metrics, strict=True):
        assert (found.counts, found.spreads, found.no_signal) == (expected.counts, expected.spreads, None)
        for name in ("loss", "gradient_norm", "entropy", "trained_tokens"):
            assert found.figures()[name] == pytest.approx(expected.figures()[name], rel=1e-4, abs=1e-6)
    two, one = read_manifest(folder / "two-p2"), read_manifest(folder / "alone-p2")
    assert two is not None
    assert one is not None
    assert (two.step, two.optimizer_steps, two.inputs[-1].digest) == (2, 2, one.inputs[-1].digest)
    assert two.options == one.options
    assert two.parent == read_manifest(folder / "two-p1").digest  # type: ignore[union-attr]
    assert trainer.about()["processes"] == "2"
    assert list((trainer._folder / "logs").iterdir())  # torchrun's own files lie where they go with the rest


def test_a_process_that_is_killed_is_named_and_the_other_ends(trainer: Any, folder: Path) -> None:
    assert len(list((folder / "two-p2" / "trainer").glob("moments-process-*.safetensors"))) == 2
    os.kill(trainer.pids[1], signal.SIGKILL)
    with pytest.raises(RunError, match="process 2 of 2 ended without saying why"):
        trainer.step_file(folder / "0.parquet")
    assert eventually(lambda: not is_running(trainer.pids[0]))


def test_an_interrupted_save_leaves_nothing_of_what_the_processes_prepared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted, ended = TrainerProcesses.__new__(TrainerProcesses), list[bool]()

    def ask(*_: object) -> None:
        (tmp_path / ".p1.tmp" / "model").mkdir(parents=True)
        raise KeyboardInterrupt

    monkeypatch.setattr(interrupted, "_ask", ask)
    monkeypatch.setattr(interrupted, "close", lambda: ended.append((tmp_path / ".p1.tmp").is_dir()))
    with pytest.raises(KeyboardInterrupt):
        interrupted.save(tmp_path / "p1")
    assert ended == [True]  # the processes first, or they would go on writing
    assert list(tmp_path.iterdir()) == []


def test_an_interruption_while_the_processes_end_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = iter([KeyboardInterrupt(), None])

    def wait(*_: object) -> None:
        if (error := next(waits)) is not None:
            raise error

    ending = TrainerProcesses.__new__(TrainerProcesses)
    (tmp_path / "folder").mkdir()
    nothing = SimpleNamespace(wait=wait, kill=lambda: None, close=lambda: None)
    ending._folder, ending._torchrun, ending._listener = tmp_path / "folder", nothing, nothing  # type: ignore[assignment]
    monkeypatch.setattr(ending, "cancel", lambda: None)
    with pytest.raises(KeyboardInterrupt):
        ending.close()
    assert list(tmp_path.iterdir()) == []


def test_the_folder_of_a_socket_has_a_short_name_wherever_temporary_files_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("x" * 90)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    short = short_folder()
    with listening(short / "socket"):
        assert (short / "socket").exists()
    shutil.rmtree(short)
    monkeypatch.setattr("dialrl.update.processes._USUAL_TEMPORARY", ("/proc",))
    with pytest.raises(
        UsageError, match=r"can hold a socket: '.*x' is longer than .*nor can /proc\. Set TMPDIR to a short"
    ):
        short_folder()
    assert list(long.iterdir()) == []


def test_an_error_in_one_process_is_the_error_that_is_raised(tmp_path: Path) -> None:
    model = tiny_model()
    with torch.no_grad():
        model.get_input_embeddings().weight[7] = torch.nan
    model.config.tie_word_embeddings = False
    model.lm_head.weight = torch.nn.Parameter(tiny_model().lm_head.weight.detach().clone())
    model.save_pretrained(save_policy(tmp_path / "p0"))
    rows = [turn_row("g", 0, 0, [1, 2], [3, 4]), turn_row("g", 1, 0, [1, 7], [3, 4], advantage=-1.0)]
    file = write_advantages(tmp_path / "a.parquet", rows)
    config = UpdateConfig(**BASE, processes=2, micro_batch_dialogues=1)
    with pytest.raises(NumericalError, match=r"dialogue 'g/1', turn 0, token 0.*\(in process [12] of 2\)"):
        update_policy(file, tmp_path / "p0", tmp_path / "p1", config)
    assert not (tmp_path / "p1").exists()


def test_what_is_no_policy_is_refused_before_any_process_starts(folder: Path) -> None:
    with pytest.raises(InputError, match="is no policy"):
        open_trainer(folder, UpdateConfig(**BASE, processes=2))


def test_torchrun_and_the_options_must_agree(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"WORLD_SIZE": "3", "RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match="torchrun started 3 processes, processes is 2"):
        open_trainer(folder / "p0", UpdateConfig(**BASE, processes=2))


@pytest.mark.parametrize(("ending", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)])
def test_no_process_outlives_the_command_that_started_it(ending: signal.Signals, code: int, folder: Path) -> None:
    mark = uuid.uuid4().hex
    command = [sys.executable, "-m", "dialrl", "update", str(folder / "0.parquet"), "--policy", str(folder / "p0")]
    options = ["-o", str(folder / "never"), "--processes", "2", "--epochs", "100000", "--max-mismatch", "100"]
    environment = {**os.environ, MARK: mark, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen([*command, *options, "--device", "cpu"], env=environment, stderr=subprocess.PIPE) as started:
        assert eventually(lambda: len(marked(mark)) >= 4)  # command, torchrun, two processes
        time.sleep(1.0)
        started.send_signal(ending)
        assert started.wait(60) == code
    assert eventually(lambda: not marked(mark))
    assert not (folder / "never").exists()


def eventually(holds: Callable[[], bool], seconds: float = 60.0) -> bool:
    """Whether ``holds`` comes true in time."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def marked(mark: str) -> list[int]:
    """Running processes started with ``mark`` in their environment."""
    found = []
    for place in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"{MARK}={mark}".encode() in place.read_bytes() and is_running(int(place.parent.name)):
                found.append(int(place.parent.name))
        except OSError:  # ended meanwhile, or another user's
            continue
    return found


def said_in_turn(*messages: tuple[int, dict[str, str] | None]) -> str:
    """What is raised when processes 1 and 2 say this, one after another."""
    trainer = object.__new__(TrainerProcesses)
    trainer.count, trainer._heard = 2, queue.Queue()
    trainer.cancel = lambda: None  # type: ignore[method-assign]
    trainer._log = lambda: ""  # type: ignore[method-assign]
    for message in messages[1:]:
        trainer._heard.put(message)
    return str(trainer._failure(*messages[0]))


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (1, 0, 2)])
def test_a_process_that_lost_its_partner_is_not_the_cause_whoever_speaks_first(order: tuple[int, ...]) -> None:
    lost = {"error": "RuntimeError", "message": "[gloo/pair.cc] Read error: Connection reset by peer", "trace": ""}
    said = ((0, lost), (1, None), (0, None))
    assert "process 2 of 2 ended without saying why" in said_in_turn(*(said[place] for place in order))


def test_an_error_of_its_own_is_the_cause_and_not_the_partner_that_was_ended_for_it() -> None:
    own = {"error": "RuntimeError", "message": "out of memory", "trace": ""}
    assert "process 1 of 2: RuntimeError: out of memory" in said_in_turn((0, own), (1, None), (0, None))
