"""The guard of the test split: what is evaluated on is not trained on, wherever the file comes from.

A rollout says in its lineage which split it was held on. Of a file without one (imported dialogues) the scenarios are
looked up in their environment, as far as it knows them. Not here: the guard of a rollout's own cards (``scenario``).
"""

from collections.abc import Iterator

from dialrl.environment.base import Environment
from dialrl.environment.registry import open_environment
from dialrl.errors import DialrlError, InputError
from dialrl.trajectory.reader import Shard, TrajectoryFile

HELD_OUT = "test"


def refuse_held_out(source: TrajectoryFile) -> None:
    """Raise InputError when ``source`` holds dialogues of the test split."""
    splits = [_split_of_rollout(shard) for shard in source.shards]
    if HELD_OUT in splits:
        shard = source.shards[splits.index(HELD_OUT)]
        raise InputError(_refusal(f"'{shard.path}' was rolled out on the split '{HELD_OUT}'"))
    if None in splits and {"environment", "scenario_id"} <= set(source.names):
        held_out = next(_held_out(source), None)
        if held_out is not None:
            raise InputError(_refusal(f"{source.where} holds the scenario '{held_out}' of the split '{HELD_OUT}'"))


def _split_of_rollout(shard: Shard) -> str | None:
    record = shard.records.record("rollout")
    return None if record is None else record.options.get("split")


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
