"""Two runs compared file by file: everything but what a clock says."""

import json
from pathlib import Path

TIMES = ("seconds", "tokens_per_second", "finished")


def timeless(value):
    """JSON without what a clock says."""
    if isinstance(value, dict):
        return {key: timeless(inner) for key, inner in value.items() if key not in TIMES}
    return [timeless(inner) for inner in value] if isinstance(value, list) else value


def content(file: Path):
    if file.suffix == ".json":
        return timeless(json.loads(file.read_text()))
    if file.suffix == ".jsonl":
        return [timeless(json.loads(line)) for line in file.read_text().splitlines()]
    return file.read_bytes()


def contents(run: Path) -> dict[str, object]:
    """Every file of a run by its name, hidden ones too; times left out."""
    files = (file for file in run.rglob("*") if file.is_file() and not file.name.endswith(".run.json"))
    return {str(file.relative_to(run)): content(file) for file in files}


def assert_equal_runs(run: Path, unbroken: dict[str, object]) -> None:
    found = contents(run)
    assert sorted(found) == sorted(unbroken)
    assert [name for name in found if found[name] != unbroken[name]] == []
