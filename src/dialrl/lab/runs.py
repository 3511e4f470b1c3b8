"""One run of the laboratory as a value and as a small file: what was run, in which world, and its learning curve."""

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
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
    """Which run it is. ``options`` is all that its result depends on."""

    tier: Tier
    setting: str
    preset: str
    step_size: float
    seed: int
    options: Mapping[str, Any]

    @property
    def file_name(self) -> str:
        """A name that people can read, with a digest of the options: other options, another file."""
        text = json.dumps([FORMAT, self.tier, self.setting, dict(self.options)], sort_keys=True)
        digest = hashlib.blake2b(text.encode(), digest_size=6).hexdigest()
        return f"{self.setting}/{self.preset}-step{self.step_size:g}-seed{self.seed}-{digest}.json"


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
            **asdict(self.key),
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
        return (self.folder / key.file_name).is_file()

    def read(self, key: RunKey) -> RunResult | None:
        """The run, or None where it is not finished. Raises InputError for a file that cannot be read."""
        path = self.folder / key.file_name
        if not self.has(key):
            return None
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            curve = tuple(FastPoint(**point) for point in stored["curve"])
            return RunResult(key, curve, DemoReference(**stored["reference"]), float(stored["seconds"]))
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"'{path}' is no run of the laboratory ({error}). Remove it; it is run again.") from None

    def write(self, result: RunResult) -> None:
        """Store a finished run; the file appears only when complete."""
        write_text(self.folder / result.key.file_name, json.dumps(result.to_json()) + "\n")


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
