"""Configuration of a stage: one frozen pydantic model, filled from defaults < YAML section < ``--set`` < flags.

Fields are *semantic* (they change the numbers; resume compares them and the lineage stores them) or *operational*
(concurrency, timeouts, paths of caches; they may differ between a run and its continuation). Help text and bounds live
on the field, once: the command line is generated from it (``dialrl.cli.command``). Not here: any stage's own fields.
"""

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from pathlib import Path
from types import UnionType
from typing import Any, Self, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from dialrl.errors import MissingInputError, UsageError
from dialrl.resources import resource


def semantic(default: Any = ..., *, help: str, flag: str | None = None, **bounds: Any) -> Any:
    """A field that changes what the stage computes; ``flag`` where its option is not named after it (``--from``)."""
    extra: dict[str, Any] = {"operational": False}
    return Field(
        default, description=help, json_schema_extra=extra if flag is None else {**extra, "flag": flag}, **bounds
    )


def operational(default: Any = ..., *, help: str, **bounds: Any) -> Any:
    """A field that changes only how the stage works (speed, memory, places), never its result."""
    return Field(default, description=help, json_schema_extra={"operational": True}, **bounds)


class StageConfig(BaseModel):
    """Base of every stage's configuration: frozen, unknown keys refused, no silent conversions of NaN or infinity."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _null_is_the_default(cls, values: Any) -> Any:
        """Leave out fields that are null and have no meaning for it, so that what is inherited can be taken back."""
        if not isinstance(values, Mapping):
            return values
        fields = cls.model_fields
        return {
            name: value
            for name, value in values.items()
            if value is not None or name not in fields or _takes_null(fields[name].annotation)
        }

    @classmethod
    def is_operational(cls, field: str) -> bool:
        extra = cls.model_fields[field].json_schema_extra
        return isinstance(extra, dict) and extra.get("operational") is True

    @classmethod
    def flag_of(cls, field: str) -> str:
        """The option that sets ``field``."""
        extra = cls.model_fields[field].json_schema_extra
        named = extra.get("flag") if isinstance(extra, dict) else None
        return str(named) if named else "--" + field.replace("_", "-")

    def semantic_values(self) -> dict[str, Any]:
        """The semantic fields as plain JSON values: what the lineage stores and resume compares."""
        values = self.model_dump(mode="json")
        return {name: value for name, value in values.items() if not self.is_operational(name)}

    def updated(self, **changes: Any) -> Self:
        """A validated copy with some fields changed (``None`` values are changes too)."""
        return type(self).model_validate({**self.model_dump(), **changes})


ConfigT = TypeVar("ConfigT", bound=BaseModel)


def resolve_config(
    model: type[ConfigT],
    *,
    section: str,
    file: Path | None = None,
    assignments: Sequence[str] = (),
    flags: Mapping[str, Any] | None = None,
    read_section: Callable[[Path], Mapping[str, Any]] | None = None,
) -> ConfigT:
    """The configuration of a stage: defaults < section of ``file`` < ``assignments`` (``key=value``) < ``flags``.

    A key in ``assignments`` may be dotted to reach into a nested section. Values are read as YAML. Raises UsageError
    naming the key and its nearest known name, or the value with what was expected.
    """
    for assignment in assignments:
        _refuse_own_section(assignment, section, model)
    read = read_section or (lambda place: read_yaml_section(place, section))
    values: dict[str, Any] = {} if file is None else dict(read(file))
    for assignment in assignments:
        assign(values, assignment)
    values.update({key: value for key, value in (flags or {}).items() if value is not None})
    return validated(model, values, where=f"{file}, section '{section}'" if file is not None else section)


def validated(model: type[ConfigT], values: Mapping[str, Any], *, where: str) -> ConfigT:
    """``values`` as a ``model``, or a UsageError that names every wrong key, what it was and what was expected."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise UsageError(_explain(model, error, where)) from None


def read_yaml(file: Path) -> dict[str, Any]:
    """The mapping in a YAML file, read without any object construction.

    A key ``extends`` names another YAML file whose values hold where this one has none: a path relative to this file,
    or, where there is no such file, the bare name of a shipped pipeline. See ``merged`` for how they meet.
    """
    contents = [_read_one(file)]
    seen = [file.resolve()]
    while "extends" in contents[-1]:
        base = _extended(seen[-1], str(contents[-1].pop("extends"))).resolve()
        if base in seen:
            raise UsageError(f"'{file}' extends itself, by way of '{base}'.")
        seen.append(base)
        contents.append(_read_one(base))
    return reduce(merged, reversed(contents))  # from the base on: what one file takes away, its base has no more


def _extended(file: Path, name: str) -> Path:
    """The file that ``file`` extends under ``name``."""
    beside = file.parent / name
    if beside.exists() or name != Path(name).name:
        return beside
    try:
        return resource(name, kind="pipelines")
    except MissingInputError:
        raise MissingInputError(
            f"'{file}' extends '{name}', but there is no '{beside}' and no shipped pipeline of that name."
        ) from None


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """``base`` with ``changes`` on top, section by section; lists and single values are replaced whole.

    null takes a mapping of ``base`` away: ``{"a": {"x": 1}, "b": 2}`` with ``{"a": None}`` on top is ``{"b": 2}``.
    """
    result = dict(base)
    for key, value in changes.items():
        held = result.get(key)
        if not isinstance(held, Mapping):
            result[key] = value
        elif value is None:
            del result[key]
        else:
            result[key] = merged(held, value) if isinstance(value, Mapping) else value
    return result


def _read_one(file: Path) -> dict[str, Any]:
    import yaml  # here: --help of a command needs no YAML

    if file.is_dir():
        raise UsageError(f"'{file}' is a folder; expected a pipeline YAML file, such as one in it.")
    if not file.is_file():
        raise MissingInputError(f"Configuration file '{file}' does not exist. Give the path of a pipeline YAML file.")
    try:
        text = file.read_text(encoding="utf-8")
        _refuse_repeated_keys(yaml.compose(text, Loader=yaml.SafeLoader), file)
        content = yaml.safe_load(text)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"'{file}' is not valid YAML: {error}") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise UsageError(f"'{file}' holds a {type(content).__name__}; expected one section (a mapping) a stage.")
    return {str(key): value for key, value in content.items()}


def _refuse_repeated_keys(node: Any, file: Path) -> None:
    """Raise UsageError for a key that stands twice in one mapping: the first value would be lost."""
    if node is None or isinstance(node.value, str):
        return
    if node.tag.endswith(":map"):
        names = [key.value for key, _ in node.value]
        repeated = next((key for key, _ in node.value if names.count(key.value) > 1), None)
        if repeated is not None:
            line = [key for key, _ in node.value if key.value == repeated.value][1].start_mark.line + 1
            raise UsageError(f"'{file}', line {line}: the key '{repeated.value}' stands twice; merge the two.")
    for child in node.value:
        for inner in child if isinstance(child, tuple) else (child,):
            _refuse_repeated_keys(inner, file)


def read_yaml_section(file: Path, section: str) -> dict[str, Any]:
    """The ``section`` of a pipeline YAML; a missing section is an empty one."""
    content = read_yaml(file).get(section) or {}
    if not isinstance(content, dict):
        raise UsageError(f"'{file}': section '{section}' holds {content!r}; expected 'key: value' lines.")
    return dict(content)


def differing_keys(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """One line a key whose value differs: ``gamma: 0.85 -> 0.9``. Both are ``semantic_values()``."""
    keys = sorted(set(old) | set(new))
    return [f"{key}: {old.get(key)!r} -> {new.get(key)!r}" for key in keys if old.get(key) != new.get(key)]


def nearest(name: str, known: Iterable[str]) -> str:
    """`` Did you mean 'x'?`` for the closest known name, or an empty string."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f" Did you mean '{close[0]}'?" if close else ""


def assign(values: dict[str, Any], assignment: str) -> None:
    """Put ``key=value`` (``a.b=value`` for a nested one) into ``values``; the value is read as YAML."""
    key, separator, text = assignment.partition("=")
    if not separator or not key.strip():
        raise UsageError(f"--set got '{assignment}'; expected key=value, for example --set gamma=0.9.")
    import yaml

    *parents, last = key.strip().split(".")
    target = values
    for parent in parents:
        child = target.setdefault(parent, {})
        if not isinstance(child, dict):
            raise UsageError(f"--set {assignment}: '{parent}' holds {child!r}, which has no keys inside.")
        target = child
    try:
        target[last] = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise UsageError(f"--set {assignment}: the value is not valid YAML: {error}") from None


def _refuse_own_section(assignment: str, section: str, model: type[BaseModel]) -> None:
    key = assignment.partition("=")[0].strip()
    start, _, rest = key.partition(".")
    if start == section and rest and start not in model.model_fields:
        raise UsageError(
            f"--set {assignment}: this command reads the section '{section}' alone, so its keys stand here without its"
            f" name: --set {assignment.strip().removeprefix(section + '.')}"
        )


def _explain(model: type[BaseModel], error: ValidationError, where: str) -> str:
    lines = []
    for fault in error.errors():
        key = ".".join(str(part) for part in fault["loc"])
        if fault["type"] == "extra_forbidden":
            lines.append(f"unknown key '{key}'.{_meant(model, fault['loc'])}")
        else:
            lines.append(f"{key}: {_said(fault)}" if key else _said(fault))
    return f"Configuration of {where}: " + "; ".join(lines)


def _said(fault: Mapping[str, Any]) -> str:
    """What is wrong, and the single value that is; a whole section is not repeated."""
    sentence = str(fault["msg"]).removeprefix("Value error, ")
    got = fault.get("input")
    return sentence if isinstance(got, Mapping) and fault["type"] == "value_error" else f"{sentence} (got {got!r})"


def _meant(model: type[BaseModel], location: Sequence[Any]) -> str:
    """The sections that have the unknown key, where it stands outside all of them; else the nearest name."""
    name = str(location[-1])
    if len(location) == 1:
        holders = [field for field in model.model_fields if name in _fields_at(model, [field])]
        if holders:
            return f" Did you mean {' or '.join(repr(f'{holder}.{name}') for holder in holders)}?"
    return nearest(name, _fields_at(model, location[:-1]))


def _takes_null(annotation: Any) -> bool:
    if get_origin(annotation) in (Union, UnionType):
        return any(_takes_null(part) for part in get_args(annotation))
    return annotation in (type(None), Any)


def _fields_at(model: type[BaseModel], path: Sequence[Any]) -> list[str]:
    for part in path:
        annotation = model.model_fields[part].annotation if part in model.model_fields else None
        if get_origin(annotation) in (Union, UnionType):  # a section that may be absent
            annotation = next((kind for kind in get_args(annotation) if kind is not type(None)), None)
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
            return []
        model = annotation
    return list(model.model_fields)
