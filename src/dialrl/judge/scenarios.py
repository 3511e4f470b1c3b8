"""The scenarios behind the dialogues of a file, for a judge that grades them afterwards.

Their environment is opened with the options of the rollout, which stand in the file's lineage, and what is given on
top; parts of the input that were held with different ones are refused. Cards and questions are checked against the
digest the rollout noted: a judge must not read another card than the actor played.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from dialrl.environment.base import Environment
from dialrl.environment.registry import open_environment
from dialrl.errors import InputError, MissingInputError
from dialrl.scenario.card import Scenario
from dialrl.trajectory.agreement import agreed, rollouts
from dialrl.trajectory.lineage import StageRecord
from dialrl.trajectory.reader import TrajectoryFile

_PLACES = {"cards": "the actor played", "questions": "were asked"}
"""Options of environments that name the files their scenarios come from, and what those were for."""


class Scenarios:
    """Opens each environment once. ``given`` overrides the rollout's options key by key."""

    def __init__(self, source: TrajectoryFile, given: Mapping[str, Any]) -> None:
        self._rolled_out = [(where, record) for where, record in rollouts(source) if record is not None]
        self._given = given
        self._environments: dict[str, Environment] = {}

    def open_all(self, source: TrajectoryFile) -> None:
        """Open every environment of ``source``: what cannot work is refused before any work is done."""
        for table in source.groups(["environment"]):
            for name in table["environment"].unique().to_pylist():
                self.environment(name)

    def find(self, row: Mapping[str, Any]) -> Scenario:
        """The scenario of a row. Raises InputError when its environment does not have it."""
        return self.environment(row["environment"]).find(row["scenario_id"])

    def environment(self, name: str) -> Environment:
        """The environment ``name``. Raises InputError when its cards are not there or are others."""
        if name not in self._environments:
            self._environments[name] = self._open(name)
        return self._environments[name]

    @property
    def made_from(self) -> dict[str, Any]:
        """Digests behind the environments that were opened, for the lineage."""
        known = {name: getattr(opened, "provenance", None) for name, opened in self._environments.items()}
        return {name: digests for name, digests in known.items() if digests}

    def _open(self, name: str) -> Environment:
        held = [(where, record) for where, record in self._rolled_out if record.options.get("environment") == name]
        inherited = self._inherited(held)
        named = [option for option in _PLACES if option not in self._given]
        try:
            environment = open_environment(name, {**inherited, **self._given})
        except MissingInputError as error:
            gone = next((option for option in named if inherited.get(option) is not None), None)
            if gone is None:
                raise
            raise MissingInputError(
                f"The dialogues of {held[0][0]} were held with the {gone} in '{inherited[gone]}' (as its lineage"
                f" says). {error} Put them there, run where that path leads to them, or say where they are:"
                f" {_naming(gone)}"
            ) from None
        for where, record in held:
            made_from = record.details.get("environment_made_from") or {}
            for option in named:
                _check(environment, option, inherited.get(option), made_from.get(option), where)
        return environment

    def _inherited(self, held: Sequence[tuple[str, StageRecord]]) -> Mapping[str, Any]:
        """The rollouts' options where none is given. Raises InputError when they were held with different ones."""
        options = [(where, record.options.get("environment_options") or {}) for where, record in held]
        open_ones = [(where, {n: v for n, v in one.items() if n not in self._given}) for where, one in options]
        return agreed(
            open_ones,
            done="rolled out",
            advice="Judge such files one at a time, or say which holds for all: --set environment_options.NAME=VALUE",
        )


def _check(environment: Environment, option: str, place: str | None, before: str | None, where: str) -> None:
    """Raise InputError when what ``option`` names is another now than in the rollout (``before``: its digest then)."""
    now = (getattr(environment, "provenance", None) or {}).get(option)
    if before is None or now is None or before == now:
        return
    held = f"the shipped {option}" if place is None else f"the {option} in '{place}'"
    raise InputError(
        f"The dialogues of {where} were held with {held} of digest {before}; now they have {now}. A judge"
        f" would read other {option} than {_PLACES[option]}. Put the old ones back, or name the {option} to judge"
        f" by: {_naming(option)}{' (null: the shipped ones)' if place is None else ''}"
    )


def _naming(option: str) -> str:
    return f"--set environment_options.{option}=PLACE"
