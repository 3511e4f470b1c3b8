"""Outputs appear only when complete (temporary sibling, fsync, rename), and are made by one process at a time.

What keeps one from being written is told in one way: which output, why, what to do (``writing``).
"""

import errno
import fcntl
import os
import platform
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path

from dialrl.errors import DialrlError, OutputExistsError, UsageError, WriteError

_FULL = (errno.ENOSPC, errno.EDQUOT)
_OF_WRITING = (*_FULL, errno.EFBIG, errno.EROFS, errno.EIO)  # an error without a name is about writing if it is these
_OF_THE_PLACE = (errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR, errno.EEXIST)


def temporary_sibling(path: Path) -> Path:
    """Where ``path`` is prepared: the same folder (so that the rename is atomic), a hidden name."""
    return path.with_name(f".{path.name}.tmp")


def sync(path: Path) -> None:
    """Flush a file's or folder's content to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def publish(temporary: Path, path: Path) -> None:
    """Make the complete file ``temporary`` visible as ``path``, durably."""
    sync(temporary)
    temporary.replace(path)
    sync(path.parent)


def publish_folder(temporary: Path, output: Path) -> None:
    """Make the flushed folder ``temporary`` the folder ``output``; one that is there is moved aside, then removed."""
    replaced = output.with_name(f".{output.name}.replaced.tmp")
    shutil.rmtree(replaced, ignore_errors=True)
    if output.exists():
        output.rename(replaced)
    temporary.rename(output)
    sync(output.parent)
    shutil.rmtree(replaced, ignore_errors=True)


@contextmanager
def atomic_path(path: Path, *, part_of: Path | None = None) -> Iterator[Path]:
    """A temporary path to write to; published on success, removed on any failure.

    ``part_of``: the output that the user named, where ``path`` is only a step towards it. Raises WriteError when the
    disk does not take it, UsageError while another process writes it.
    """
    temporary = temporary_sibling(path)
    with writing(path, named=part_of), prepared_alone(path):
        try:
            yield temporary
            publish(temporary, path)
        finally:
            with suppress(OSError):  # what ended the block is the error to tell
                temporary.unlink(missing_ok=True)


@contextmanager
def writing(output: Path, *, named: Path | None = None) -> Iterator[None]:
    """A block that writes ``output`` (or a folder of that name); ``named``: what the user calls it.

    Raises WriteError when the disk does not take it. Errors about other files, and of connections, pass as they are.
    """
    try:
        yield
    except DialrlError:
        raise
    except OSError as error:
        if not _is_about(error, output):
            raise
        raise WriteError(_sentence(error, output, named or output)) from error


def _is_about(error: OSError, output: Path) -> bool:
    if not isinstance(error.filename, str):
        return error.errno in _OF_WRITING
    place = Path(error.filename)
    return place in output.parents or _inside(place, output) is not None


def _inside(place: Path, output: Path) -> str | None:
    """The part of ``output`` that lies at ``place``, which may stand under a hidden name; None for other files."""
    first, *rest = Path(os.path.relpath(place, output.parent)).parts or (".",)
    return "/".join(rest) if first == output.name or first.startswith(f".{output.name}.") else None


def _sentence(error: OSError, output: Path, named: Path) -> str:
    held = _inside(Path(error.filename), output) if isinstance(error.filename, str) else ""
    what = f"'{named}'" + (f", '{held}' in it," if held else "")
    reason = os.strerror(error.errno) if error.errno else str(error)
    return f"The output {what} could not be written: {reason}. {advice(error.errno, named.parent)}"


def advice(number: int | None, folder: Path) -> str:
    """What to do about a system error ``number`` while writing into ``folder``."""
    if of_disk := disk_advice(number):
        return of_disk
    if number not in _OF_THE_PLACE:
        return "Name another output."
    return f"Nothing can be created in '{folder}': name an output elsewhere, or make that a folder that can be written."


def disk_advice(number: int | None) -> str:
    """What to do when the disk is the reason, wherever the file was to be; empty for other system errors."""
    if number in _FULL:
        return "Free space on that disk, or name an output on another one."
    if number == errno.EFBIG:
        return "A limit on the size of files stops it (ulimit -f): raise that, or name an output on another disk."
    return ""


def refuse_place(output: Path) -> None:
    """Raise OutputExistsError for an output that would lie inside a file."""
    blocker = next((parent for parent in output.parents if parent.exists() and not parent.is_dir()), None)
    if blocker is not None:
        raise OutputExistsError(f"The output '{output}' would lie inside '{blocker}', which is a file. Name a folder.")


@contextmanager
def exclusive(lock: Path, what: str, *, signed: bool = True) -> Iterator[None]:
    """Hold the file ``lock`` while a block runs: one process at a time. It is let go when the process ends, however.

    It says who holds it unless not ``signed``, and goes when the block ends. Raises UsageError, naming the process,
    when another one holds it.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    descriptor = _locked(lock, what)
    try:
        if signed:
            with suppress(OSError):  # a full disk: held all the same, without saying by whom
                os.ftruncate(descriptor, 0)
                os.write(descriptor, f"process {os.getpid()} on {platform.node()}".encode())
        yield
    finally:
        if _is_still(descriptor, lock):
            with suppress(OSError):
                lock.unlink()
        os.close(descriptor)


@contextmanager
def made_by_one(output: Path) -> Iterator[None]:
    """Keep other processes from making ``output`` at the same time, and find out at once whether it can be written.

    Folders that were made for it and stayed empty go again. Raises UsageError or WriteError.
    """
    refuse_place(output)
    missing = [parent for parent in output.parents if not parent.exists()]
    try:
        with ExitStack() as held:
            with writing(output):
                held.enter_context(exclusive(output.with_name(f".{output.name}.lock"), f"The output '{output}'"))
            yield
    finally:
        with suppress(OSError):
            for parent in missing:
                parent.rmdir()


def prepared_alone(output: Path) -> AbstractContextManager[None]:
    """Keep other processes from the temporary sibling of ``output``, a file, which all of them would use."""
    return exclusive(temporary_sibling(output), f"The output '{output}'", signed=False)


@contextmanager
def folder_prepared_alone(output: Path) -> Iterator[Path]:
    """The temporary sibling of ``output`` as an empty folder that no other process takes; removed if still there."""
    temporary = temporary_sibling(output)
    temporary.parent.mkdir(parents=True, exist_ok=True)
    descriptor = _locked(temporary, f"The output '{output}'", is_folder=True)
    try:
        for left in temporary.iterdir():
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        yield temporary
    finally:
        if _is_still(descriptor, temporary):
            shutil.rmtree(temporary, ignore_errors=True)
        os.close(descriptor)


def _locked(path: Path, what: str, *, is_folder: bool = False) -> int:
    """Descriptor of ``path``, made if it is not there, and held."""
    while True:
        if is_folder:
            path.mkdir(exist_ok=True)
        descriptor = os.open(path, os.O_RDONLY if is_folder else os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = "" if is_folder else os.read(descriptor, 200).decode(errors="replace")
            os.close(descriptor)
            holder = holder if holder.startswith("process ") else "another process"
            raise UsageError(f"{what} is in use by {holder}. Wait until it ends, or name another place.") from None
        if _is_still(descriptor, path):  # else it was let go and removed between the two calls
            return descriptor
        os.close(descriptor)


def _is_still(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def write_text(path: Path, text: str) -> None:
    """Write a small text file atomically (UTF-8)."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
