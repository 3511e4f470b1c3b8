"""The guard of the test split: what is evaluated on is not trained on, wherever the file comes from.

A rollout says in its lineage which split it was held on. Of a file without one (imported dialogues) the scenarios are
looked up in their environment, as far as it knows them. Not here: the guard of a rollout's own cards (``scenario``).
"""

from collections.abc import Iterator

from dialrl.environment.base import Environment
from dialrl.environment.registry import open_environment
from dialrl.errors import DialrlError, InputError
from dialrl.trajectory.agreement import rollouts
from dialrl.trajectory.reader import TrajectoryFile

HELD_OUT = "test"


def refuse_held_out(source: TrajectoryFile) -> None:
    """Raise InputError when ``source`` holds dialogues of the test split."""
    splits: dict[str | None, str] = {}
    for where, record in rollouts(source):
        split = None if record is None else record.options.get("split")
        splits.setdefault(split, where)
    if HELD_OUT in splits:
        raise InputError(_refusal(f"{splits[HELD_OUT]} was rolled out on the split '{HELD_OUT}'"))
    if None in splits and {"environment", "scenario_id"} <= set(source.names):
        held_out = next(_held_out(source), None)
        if held_out is not None:
            raise InputError(_refusal(f"{source.where} holds the scenario '{held_out}' of the split '{HELD_OUT}'"))


def _refusal(fault: str) -> str:
    return (
        f"{fault}: what is trained on cannot be tested on. Roll out on another split, or take those dialogues out of"
        " the file."
    )


def _held_out(source: TrajectoryFile) -> Iterator[str]:
    """Test scenarios among those of ``source`` that an installed environment knows."""
    environments: dict[str, Environment | None] = {}
    for table in source.groups(["environment", "scenario_id"]):
        named = table.group_by(["environment", "scenario_id"]).aggregate([])
        for row in named.to_pylist():
            name = row["environment"]
            if name not in environments:
                environments[name] = _opened(name)
            if _split(environments[name], row["scenario_id"]) == HELD_OUT:
                yield row["scenario_id"]


def _opened(name: str | None) -> Environment | None:
    try:
        return None if name is None else open_environment(name, {})
    except DialrlError:  # dialogues from elsewhere: nothing is known of their scenarios
        return None


def _split(environment: Environment | None, scenario_id: str | None) -> str | None:
    try:
        return None if environment is None or scenario_id is None else environment.find(scenario_id).split
    except InputError:
        return None
