"""Files that appear only when complete: temporary sibling, fsync, rename."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dialrl.errors import UsageError


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


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """A temporary path to write to; published on success, removed on any failure."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_sibling(path)
    try:
        yield temporary
        publish(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def exclusive(lock: Path, what: str) -> Iterator[None]:
    """Hold the file ``lock`` while a block runs: one process at a time. It is let go when the process ends, however.

    Raises UsageError when another process holds it.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                f"{what} is in use by another process. Wait until it ends, or name another place."
            ) from None
        yield


def write_text(path: Path, text: str) -> None:
    """Write a small text file atomically (UTF-8)."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
