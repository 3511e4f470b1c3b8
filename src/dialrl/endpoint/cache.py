"""Answers shared between runs: one small file an answer, named by the hash of the request body.

The body is the whole request (rubric, model, temperature, dialogue, seed) without secrets, so nothing but an equal
question is ever answered from here (field case 30). Files appear only when complete, so any number of processes may
share a folder; a file that cannot be read is a miss. Not here: whether an answer is worth keeping; failures are not.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

from dialrl.endpoint.journal import body_hash

_FOLDER_VARIABLE = "DIALRL_CACHE"


def default_cache_folder() -> Path:
    """Where answers lie unless the user says otherwise: DIALRL_CACHE, else the user's cache folder."""
    named = os.environ.get(_FOLDER_VARIABLE)
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dialrl" / "calls"


class CallCache:
    """Answers by request body, under ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, body: Mapping[str, Any]) -> dict[str, Any] | None:
        """The kept answer to exactly this body; None when there is none that can be read."""
        try:
            answer = json.loads(self._path(body).read_bytes())
        except (OSError, ValueError):
            return None
        return answer if isinstance(answer, dict) else None

    def put(self, body: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
        """Keep an answer."""
        path = self._path(body)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{uuid4().hex}")
        temporary.write_text(json.dumps(answer, ensure_ascii=True), encoding="utf-8")
        temporary.replace(path)

    def _path(self, body: Mapping[str, Any]) -> Path:
        name = body_hash(body)
        return self.folder / name[:2] / f"{name[2:]}.json"
