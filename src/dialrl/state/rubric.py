"""A rubric: the axes of a state model, the indicators a judge grades, and what each level is worth.

A rubric is data (YAML; the shipped one is ``data/rubrics/support.yaml``). The judge chooses levels; this file turns
them into the deficit P_0 and the increments, so that a score never comes from a language model. Any number of named
axes. Source: docs/state-model.md. Not here: prompts and calls (``dialrl.judge``), the geometry (``model``).
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from dialrl.config import nearest, read_yaml, validated
from dialrl.errors import InputError
from dialrl.resources import resource

DEFAULT_RUBRIC = "support"


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=False, allow_inf_nan=False)


class Axis(_Part):
    """One coordinate of the state, and the need behind it in the person's own words."""

    name: str
    label: str
    need: str


class Level(_Part):
    """One level of an indicator: an ordinal number (signed: harm is below 0), its score, its meaning."""

    level: int
    score: float
    meaning: str


class Indicator(_Part):
    """What is graded at every reply."""

    name: str
    axis: str
    question: str
    levels: tuple[Level, ...] = Field(min_length=2)

    def score(self, level: int) -> float:
        """Score of ``level``; raises InputError when the rubric has no such level."""
        for known in self.levels:
            if known.level == level:
                return known.score
        raise InputError(_no_such_level(self.name, level, [known.level for known in self.levels]))


class DeficitLevel(_Part):
    """One level of a deficit item; its score is level x unit."""

    level: int
    meaning: str


class DeficitItem(_Part):
    """What is assessed once a group, before the first reply."""

    item: str
    axis: str
    unit: float
    question: str
    levels: tuple[DeficitLevel, ...] = Field(min_length=2)

    def score(self, level: int) -> float:
        """level x unit; raises InputError when the rubric has no such level."""
        if level not in {known.level for known in self.levels}:
            raise InputError(_no_such_level(self.item, level, [known.level for known in self.levels]))
        return level * self.unit


class Rubric(_Part):
    """Axes, deficit items and indicators, checked against each other when built."""

    name: str
    version: int
    axes: tuple[Axis, ...] = Field(min_length=1)
    rules: tuple[str, ...] = ()
    deficit: tuple[DeficitItem, ...]
    indicators: tuple[Indicator, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _names_are_unique_and_known(self) -> Self:
        _refuse_repeats("axis", [axis.name for axis in self.axes])
        _refuse_repeats("indicator", [indicator.name for indicator in self.indicators])
        _refuse_repeats("deficit item", [item.item for item in self.deficit])
        parts: tuple[Indicator | DeficitItem, ...] = (*self.indicators, *self.deficit)
        for part in parts:
            if part.axis not in self.axis_names:
                raise ValueError(f"axis '{part.axis}' is not one of {list(self.axis_names)}")
            _refuse_repeats("level", [str(level.level) for level in part.levels])
        return self

    @property
    def axis_names(self) -> tuple[str, ...]:
        return tuple(axis.name for axis in self.axes)

    @property
    def indicator_names(self) -> tuple[str, ...]:
        return tuple(indicator.name for indicator in self.indicators)

    def deficit_from_levels(self, levels: Mapping[str, int]) -> tuple[float, ...]:
        """P_0 (A,): by axis the sum of level x unit. ``levels`` must hold every deficit item and nothing else.

        Example: C(2, 2, 3) A(2, 2, 2) P(1, 2, 1) -> (-17, -18, -13).
        """
        return self._summed(levels, {item.item: item for item in self.deficit})

    def increment_from_levels(self, levels: Mapping[str, int]) -> tuple[float, ...]:
        """v (A,): by axis the sum of the scores of its indicators. ``levels`` must hold every indicator, no other.

        Example: C.Prog 2, C.Neg 0, A.Prog 1, A.Neg -1, P.Prog 0, P.Neg -2 -> (3 + 0, 1 - 2, 0 - 5) = (3, -1, -5).
        """
        return self._summed(levels, {indicator.name: indicator for indicator in self.indicators})

    def digest(self) -> str:
        """Content hash for the lineage: the same for the same rubric, wherever its file lies."""
        return "sha256:" + hashlib.sha256(self.model_dump_json().encode()).hexdigest()

    def _summed(self, levels: Mapping[str, int], parts: Mapping[str, Indicator | DeficitItem]) -> tuple[float, ...]:
        _refuse_other_keys(levels, parts, self.name)
        totals = dict.fromkeys(self.axis_names, 0.0)
        for name, part in parts.items():
            totals[part.axis] += part.score(levels[name])
        return tuple(totals.values())


def load_rubric(rubric: str | Path = DEFAULT_RUBRIC) -> Rubric:
    """The shipped rubric of that name, or the one in a YAML file (a name that ends in .yaml or .yml, or a Path).

    Raises MissingInputError when there is no such file, UsageError when the file is no rubric, naming the key.
    """
    is_file = isinstance(rubric, Path) or rubric.endswith((".yaml", ".yml"))
    path = Path(rubric) if is_file else resource(f"rubrics/{rubric}.yaml")
    return validated(Rubric, read_yaml(path), where=f"the rubric '{path}'")


def _refuse_repeats(kind: str, names: list[str]) -> None:
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ValueError(f"{kind} {repeated[0]!r} stands twice")


def _refuse_other_keys(levels: Mapping[str, int], known: Mapping[str, object], rubric: str) -> None:
    unknown = [name for name in levels if name not in known]
    if unknown:
        raise InputError(f"Rubric '{rubric}' has no '{unknown[0]}'; it has {list(known)}.{nearest(unknown[0], known)}")
    absent = [name for name in known if name not in levels]
    if absent:
        raise InputError(f"Rubric '{rubric}': no level for {absent}; every one of {list(known)} needs a level.")


def _no_such_level(name: str, level: int, known: list[int]) -> str:
    return f"'{name}' has no level {level!r}; expected one of {known}. A level out of range is missing, never clipped."
