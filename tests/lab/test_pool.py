"""Workers: processes that do runs side by side, name the one that fails, and end with the process they work for."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dialrl.errors import InputError, MissingInputError, RunError
from dialrl.lab.pool import workers

LONG = 300.0  # seconds; no test waits for it
PATIENCE = 30.0


def double(number: int) -> int:
    return 2 * number


def tell_the_process(place: str) -> None:
    Path(place).write_text(str(os.getpid()))


def work_long(place: str) -> None:
    tell_the_process(place)
    time.sleep(LONG)


def fail_beside_a_long_one(job: tuple[str, str]) -> None:
    """The job named fail fails once the other one is at work."""
    name, place = job
    if name == "long":
        work_long(place)
    number_in(Path(place))
    raise InputError("The file is empty.")


def fail_otherwise(name: str) -> None:
    if name == "missing":
        raise MissingInputError("There is no file.")
    raise KeyError(name)


def die(name: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def number_in(file: Path) -> int:
    """The process id in a file, once it is there."""
    until = time.monotonic() + PATIENCE
    while not (file.is_file() and file.read_text()):
        assert time.monotonic() < until, "nobody began to work"
        time.sleep(0.02)
    return int(file.read_text())


def has_ended(process: int) -> bool:
    """Whether the process is gone, or will be within some patience."""
    until = time.monotonic() + PATIENCE
    while Path(f"/proc/{process}").exists() and "zombie" not in Path(f"/proc/{process}/status").read_text():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def test_results_come_with_their_place() -> None:
    found: dict[int, int] = {}
    with workers(2) as pool:
        pool.each(double, [1, 2, 3], found.__setitem__)
    assert found == {0: 2, 1: 4, 2: 6}


def test_a_single_job_works_here_unless_it_is_to_be_apart(tmp_path: Path) -> None:
    for apart in (False, True):
        with workers(1, apart=apart) as pool:
            pool.each(tell_the_process, [str(tmp_path / "process")], lambda *_: None)
        assert (number_in(tmp_path / "process") != os.getpid()) is apart


def test_a_failure_keeps_its_kind_says_which_job_and_ends_the_others(tmp_path: Path) -> None:
    jobs = [(name, str(tmp_path / "process")) for name in ("long", "fail")]
    with (
        pytest.raises(InputError, match=r"A run of the laboratory failed \(fail\): The file is empty."),
        workers(2) as pool,
    ):
        pool.each(fail_beside_a_long_one, jobs, lambda *_: None, named=lambda job: job[0])
    assert has_ended(number_in(tmp_path / "process"))


def test_an_error_of_no_kind_of_ours_is_a_run_error() -> None:
    with workers(1, apart=True) as pool:
        with pytest.raises(RunError, match=r"\(other\): 'other'"):
            pool.each(fail_otherwise, ["other"], lambda *_: None)
        with pytest.raises(MissingInputError, match="There is no file"):
            pool.each(fail_otherwise, ["missing"], lambda *_: None)


def test_a_worker_that_is_killed_is_told_from_a_run_that_failed() -> None:
    with pytest.raises(RunError, match=r"killed, perhaps for memory.*--resume"), workers(1, apart=True) as pool:
        pool.each(die, ["a"], lambda *_: None)


def test_somebody_may_look_while_others_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dialrl.lab.pool.SECONDS_BETWEEN_LOOKS", 0.01)
    looks: list[bool] = []
    with workers(1, apart=True) as pool:
        done: list[int] = []
        pool.each(double, [1], lambda _, result: done.append(result), meanwhile=lambda: looks.append(bool(done)))
    assert looks[0] is False  # starting a process takes longer than the time between two looks
    assert looks[-1] is True


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_workers_end_with_the_process_that_started_them(how: signal.Signals, tmp_path: Path) -> None:
    place = tmp_path / "process"
    script = (
        "from dialrl.lab.pool import workers\nfrom test_pool import work_long\n"
        "if __name__ == '__main__':\n with workers(1, apart=True) as pool:\n"
        f"  pool.each(work_long, [{str(place)!r}], print)"
    )
    (tmp_path / "begin.py").write_text(script)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    with subprocess.Popen([sys.executable, tmp_path / "begin.py"], env=environment, stderr=subprocess.DEVNULL) as one:
        worker = number_in(place)
        one.send_signal(how)
        assert one.wait(PATIENCE) != 0
    assert has_ended(worker)
