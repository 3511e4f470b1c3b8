"""Files that appear only when complete: temporary sibling, fsync, rename."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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


def write_text(path: Path, text: str) -> None:
    """Write a small text file atomically (UTF-8)."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
