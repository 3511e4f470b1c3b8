"""An output is made by one process at a time, and a disk that does not take it is told in the user's own words."""

import errno
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.trajectory_files import turns, write

from dialrl.errors import InputError, OutputExistsError, UsageError, WriteError
from dialrl.trajectory.atomic import atomic_path, exclusive, folder_prepared_alone, made_by_one, write_text, writing
from dialrl.trajectory.parts import Parts
from dialrl.trajectory.rows import rows_to_table
from dialrl.trajectory.writer import TrajectoryWriter


@pytest.fixture
def small_files_only() -> Iterator[None]:
    """A process that may write no file of more than 50 bytes, as if a quota were reached."""
    handler, limits = signal.signal(signal.SIGXFSZ, signal.SIG_IGN), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.usefixtures("small_files_only")
def test_a_text_that_cannot_be_written_names_the_file_and_leaves_none(tmp_path: Path) -> None:
    with pytest.raises(
        WriteError, match=rf"The output '{tmp_path}/t.txt' could not be written: File too large. A limit"
    ):
        write_text(tmp_path / "t.txt", "a" * 100_000)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("small_files_only")
def test_a_trajectory_that_cannot_be_written_names_the_file_and_leaves_none(tmp_path: Path) -> None:
    table = rows_to_table(turns(3))
    with pytest.raises(WriteError, match=rf"The output '{tmp_path}/t.parquet' could not be written: File too large"):
        write(tmp_path / "t.parquet", turns(3))
    with pytest.raises(WriteError, match=r"t.parquet' could not be written"):  # noqa: SIM117 - rows before the end
        with TrajectoryWriter(tmp_path / "t.parquet", table.schema, row_group_rows=1) as writer:
            writer.write(table)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("small_files_only")
def test_a_block_that_cannot_be_kept_names_the_output_it_is_for(tmp_path: Path) -> None:
    parts = Parts(tmp_path / "t.parquet", {"seed": 0}, overwrite=False, resume=False)
    with pytest.raises(WriteError, match=rf"The output '{tmp_path}/t.parquet' could not be written: File too large"):
        parts.write(0, rows_to_table(turns(3)))


def test_a_full_disk_says_what_to_free(tmp_path: Path) -> None:
    with (
        pytest.raises(
            WriteError, match=r"'runs/p', 'model' in it, could not be written: No space left on device. Free"
        ),
        writing(tmp_path / "p", named=Path("runs/p")),
    ):
        raise OSError(errno.ENOSPC, "No space left on device", str(tmp_path / ".p.tmp" / "model"))


def test_a_place_where_nothing_can_be_created_is_named(tmp_path: Path) -> None:
    for make in (lambda: write_text(Path("/proc/p1"), ""), lambda: made_by_one(Path("/proc/p1")).__enter__()):
        with pytest.raises(
            WriteError, match=r"The output '/proc/p1' could not be written: .*created in '/proc': name an"
        ):
            make()
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputExistsError, match=r"would lie inside '.*file', which is a file"):
        made_by_one(tmp_path / "file" / "x").__enter__()


def test_errors_about_other_things_are_not_about_the_output(tmp_path: Path) -> None:
    others = [
        FileNotFoundError(2, "No such file", str(tmp_path / "b")),
        ConnectionResetError(104, "reset"),
        InputError("x"),
    ]
    for other in others:
        with pytest.raises(type(other)) as raised, atomic_path(tmp_path / "a"):
            raise other
        assert raised.value is other


def test_an_output_in_the_making_is_refused_to_others_and_says_who_makes_it(tmp_path: Path) -> None:
    for place in ("p", "new/folder/p"):
        held = rf"'{tmp_path}/{place}' is in use by process {os.getpid()} on "
        with made_by_one(tmp_path / place), pytest.raises(UsageError, match=held):
            made_by_one(tmp_path / place).__enter__()
        assert list(tmp_path.iterdir()) == []  # nothing is left, not even folders made for it


def test_a_file_is_prepared_by_one_process_at_a_time(tmp_path: Path) -> None:
    with atomic_path(tmp_path / "a") as temporary:
        temporary.write_text("first")
        with pytest.raises(UsageError, match="a' is in use by another process"), atomic_path(tmp_path / "a"):
            raise AssertionError
    assert (tmp_path / "a").read_text() == "first"


def test_a_folder_is_prepared_by_one_process_at_a_time(tmp_path: Path) -> None:
    with folder_prepared_alone(tmp_path / "p") as folder:
        (folder / "kept").write_text("first")
        with pytest.raises(UsageError, match="p' is in use by another"), folder_prepared_alone(tmp_path / "p"):
            raise AssertionError
        assert (folder / "kept").read_text() == "first"


def test_a_killed_holder_holds_nothing(tmp_path: Path) -> None:
    program = (
        "import os, sys; from pathlib import Path; from dialrl.trajectory.atomic import exclusive\n"
        "held = exclusive(Path(sys.argv[1]), 'It'); held.__enter__(); os._exit(9)"
    )
    lock = tmp_path / ".lock"
    assert subprocess.run([sys.executable, "-c", program, str(lock)], check=False).returncode == 9
    assert lock.read_text().startswith("process ")
    with exclusive(lock, "It"):
        assert lock.read_text().startswith(f"process {os.getpid()} on")
    assert not lock.exists()
