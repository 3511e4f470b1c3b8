"""The journal of external calls beside an unfinished output: answered once, never asked again after a kill.

One JSON line a call, appended before the answer's effect is used; on resume the lines are read back. A line that was
half written when the process died is a miss: its call is made again. A single append of the operating system keeps
lines whole against a killed process; it is not a flush to the disk, so a power cut may lose the last lines, which are
then asked again. Not here: which answers deserve it.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

Entry = dict[str, Any]


def body_hash(body: Mapping[str, Any]) -> str:
    """sha256 of the request body as canonical JSON; bodies hold no secrets."""
    return hashlib.sha256(json.dumps(body, sort_keys=True, ensure_ascii=True).encode()).hexdigest()


def call_key(role: str, body: Mapping[str, Any], seed: int, attempt: int) -> str:
    """The name of a call: role, hash of the request body, seed, attempt."""
    named = json.dumps([role, body_hash(body), seed, attempt])
    return hashlib.sha256(named.encode()).hexdigest()


class Journal:
    """Entries by key. ``path`` None: in memory only, so that a call is made once within a run."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self.entries: dict[str, Entry] = {}
        self._descriptor: int | None = None
        if path is not None and path.exists():
            self._read(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def get(self, key: str) -> Entry | None:
        return self.entries.get(key)

    def add(self, key: str, entry: Mapping[str, Any]) -> None:
        """Keep an answer; it is in the file when this returns."""
        self.entries[key] = dict(entry)
        if self._path is None:
            return
        line = json.dumps({"key": key, **entry}, ensure_ascii=True).encode() + b"\n"
        descriptor = self._open(self._path)
        written = 0
        while written < len(line):
            written += os.write(descriptor, line[written:])

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _open(self, path: Path) -> int:
        if self._descriptor is None:
            path.parent.mkdir(parents=True, exist_ok=True)
            torn = path.exists() and not path.read_bytes().endswith(b"\n") and path.stat().st_size > 0
            self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            if torn:  # the half line stays a line of its own, which no reader understands
                os.write(self._descriptor, b"\n")
        return self._descriptor

    def _read(self, path: Path) -> None:
        with path.open("rb") as lines:
            for line in lines:
                entry = _parsed(line)
                if entry is not None:
                    self.entries[entry.pop("key")] = entry


def _parsed(line: bytes) -> Entry | None:
    if not line.endswith(b"\n"):
        return None
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) and isinstance(entry.get("key"), str) else None
