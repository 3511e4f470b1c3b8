"""Profiles of simulated users as SAGE publishes them, JSON lines: who somebody is, what happened, what they want.

Not here: playing them (``session``).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dialrl.errors import InputError, MissingInputError
from dialrl.trajectory.importers.json_lines import parse_line

TEXTS = ("player", "scene", "task", "first_talk")
TEST = "test"  # the split of a profile that names none: a benchmark's users are there to be tested on


@dataclass(frozen=True)
class Profile:
    """One user. ``player`` is the person, ``scene`` what happened, ``task`` what they hope for, hidden from the policy.

    ``about`` holds whatever else the file says of it.
    """

    id: str
    player: str
    scene: str
    task: str
    first_talk: str
    split: str
    about: Mapping[str, Any]


def load_profiles(path: Path) -> list[Profile]:
    """The profiles of a file, in order. Raises InputError naming file, line and field."""
    if not path.is_file():
        raise MissingInputError(f"'{path}' does not exist; expected SAGE profiles, one JSON object a line.")
    found: dict[str, Profile] = {}
    lines: dict[str, int] = {}
    with path.open("rb") as handle:
        for number, line in enumerate(handle, start=1):
            if not line.strip():
                continue
            profile = _profile(parse_line(line, path, number), f"'{path}', line {number}")
            if profile.id in found:
                raise InputError(
                    f"'{path}', line {number}, field 'id': got '{profile.id}', which stands on line"
                    f" {lines[profile.id]} too."
                )
            found[profile.id], lines[profile.id] = profile, number
    if not found:
        raise InputError(f"'{path}' is empty; expected SAGE profiles, one JSON object a line.")
    return list(found.values())


def _profile(values: Mapping[str, Any], where: str) -> Profile:
    identity = values.get("id")
    if isinstance(identity, bool) or not isinstance(identity, (str, int)) or not str(identity).strip():
        raise InputError(f"{where}, field 'id': got {identity!r:.60}; expected an id.")
    for name in (*TEXTS, *(["split"] if "split" in values else [])):
        if not isinstance(values.get(name), str):
            raise InputError(f"{where}, field '{name}': got {values.get(name)!r:.60}; expected a text.")
    known = {name: values[name] for name in TEXTS}
    about = {name: value for name, value in values.items() if name not in (*TEXTS, "id", "split")}
    return Profile(id=str(identity), split=values.get("split", TEST), about=about, **known)
