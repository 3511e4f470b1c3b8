"""One run of the laboratory as a value and as a small file: what was run, in which world, and its learning curve."""

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from glob import escape
from pathlib import Path
from typing import Any, Literal

from dialrl.environment.demo.planner import DemoReference
from dialrl.errors import InputError, OutputExistsError
from dialrl.lab.fast import FastPoint
from dialrl.trajectory.atomic import write_text

Tier = Literal["fast", "confirm"]
Phase = Literal["tuning", "final"]
FORMAT = 1


@dataclass(frozen=True)
class RunKey:
    """Which run it is. ``options`` is all that its result depends on, ``defaults`` what they are when not given."""

    tier: Tier
    setting: str
    preset: str
    step_size: float
    seed: int
    options: Mapping[str, Any]
    defaults: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def file_name(self) -> str:
        """A name that people can read, with a digest of the options: other options, another file."""
        text = json.dumps([FORMAT, self.tier, self.setting, dict(self.options)], sort_keys=True)
        digest = hashlib.blake2b(text.encode(), digest_size=6).hexdigest()
        return f"{self.setting}/{self.readable}-{digest}.json"

    @property
    def readable(self) -> str:
        """The part of the file name that people can read."""
        return f"{self.preset}-step{self.step_size:g}-seed{self.seed}"

    def is_met_by(self, stored: Mapping[str, Any]) -> bool:
        """Whether a stored run is this one: the same options, where those unknown to it are at their defaults.

        Example: options {"iterations": 60, "clip": 0.2} are met by a run stored with {"iterations": 60} before there
        was an option clip, if 0.2 is its default.
        """
        here: dict[str, Any] = {"tier": self.tier, "setting": self.setting, "options": dict(self.options)}
        there = {name: stored[name] for name in ("tier", "setting")}
        added = {name: self.defaults[name] for name in self.options if name in self.defaults}
        there["options"] = {**added, **stored["options"]}
        return json.dumps(here, sort_keys=True) == json.dumps(there, sort_keys=True)

    def to_json(self) -> dict[str, Any]:
        return {
            "tier": self.tier,
            "setting": self.setting,
            "preset": self.preset,
            "step_size": self.step_size,
            "seed": self.seed,
            "options": dict(self.options),
        }


@dataclass(frozen=True)
class RunResult:
    """A finished run: its learning curve and the exact values of its world."""

    key: RunKey
    curve: tuple[FastPoint, ...]
    reference: DemoReference
    seconds: float

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            **self.key.to_json(),
            "reference": asdict(self.reference),
            "seconds": round(self.seconds, 3),
            "curve": [asdict(point) for point in self.curve],
        }


class RunFiles:
    """The finished runs of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def has(self, key: RunKey) -> bool:
        """Whether the run is finished."""
        return self._place(key) is not None

    def _place(self, key: RunKey) -> Path | None:
        """Where the run lies: under its name, or the one it had when some option did not exist yet."""
        path = self.folder / key.file_name
        if path.is_file():
            return path
        older = sorted(path.parent.glob(f"{escape(key.readable)}-*.json"))
        return next((each for each in older if key.is_met_by(_stored(each))), None)

    def read(self, key: RunKey) -> RunResult | None:
        """The run, or None where it is not finished. Raises InputError for a file that cannot be read."""
        path = self._place(key)
        if path is None:
            return None
        stored = _stored(path)
        try:
            curve = tuple(FastPoint(**point) for point in stored["curve"])
            return RunResult(key, curve, DemoReference(**stored["reference"]), float(stored["seconds"]))
        except (ValueError, KeyError, TypeError) as error:
            raise _no_run(path, error) from None

    def write(self, result: RunResult) -> None:
        """Store a finished run; the file appears only when complete."""
        write_text(self.folder / result.key.file_name, json.dumps(result.to_json()) + "\n")


def _stored(path: Path) -> dict[str, Any]:
    """A run's file. Raises InputError for one that is none."""
    try:
        stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        stored["tier"], stored["setting"], dict(stored["options"])
    except (ValueError, KeyError, TypeError) as error:
        raise _no_run(path, error) from None
    return stored


def _no_run(path: Path, error: Exception) -> InputError:
    return InputError(f"'{path}' is no run of the laboratory ({error}). Remove it; it is run again.")


def prepare_runs(folder: Path, *, overwrite: bool, resume: bool) -> None:
    """Refuse a folder of finished runs unless they are to be kept (``resume``) or removed (``overwrite``)."""
    if resume or not folder.exists() or not any(folder.iterdir()):
        return
    if not overwrite:
        raise OutputExistsError(
            f"'{folder}' holds finished runs. Give --resume to play only what is missing, --overwrite to begin anew, or"
            " another folder."
        )
    shutil.rmtree(folder)


def read_references(path: Path) -> dict[tuple[int, int], DemoReference]:
    """Exact values by (turn limit, extra trust) that were written before; none where there is no file."""
    if not path.is_file():
        return {}
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        return {(each["turn_limit"], each["extra_trust"]): DemoReference(**each["values"]) for each in stored}
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"'{path}' holds no exact values ({error}). Remove it; they are computed again.") from None


def write_references(path: Path, known: Mapping[tuple[int, int], DemoReference]) -> None:
    """Keep exact values."""
    rows = [{"turn_limit": limit, "extra_trust": extra, "values": asdict(one)} for (limit, extra), one in known.items()]
    write_text(path, json.dumps(rows, indent=1) + "\n")
