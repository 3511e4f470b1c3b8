"""Parts by name: the built-in ones, and users' own environments, judges, engines, channels, presets and retrievers.

Users' parts come from installed packages through entry points of the group ``dialrl.<kind>``. A part is loaded when it
is asked for by name, and once a process: a broken or newly installed package is the business of those who name it. A
user's name never hides a built-in one. Not here: the lists of built-in parts; each package has its own.
"""

import inspect
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from pydantic import ValidationError

from dialrl.config import nearest
from dialrl.errors import DialrlError, UsageError

BuiltIn = Mapping[str, tuple[str, str]]
"""Name to (module, attribute); the module is imported when the part is asked for."""

_loaded: dict[tuple[str, str], Any] = {}


@dataclass(frozen=True)
class Installed:
    """A part that an installed package registers: ``part``, or why there is none (``fault``)."""

    kind: str
    name: str
    package: str
    part: Any = None
    fault: str | None = None


def installed_names(kind: str, *, built_in: Iterable[str] = ()) -> list[str]:
    """Names that installed packages register, without those that are taken; loads nothing."""
    taken = set(built_in)
    return [name for name in dict.fromkeys(point.name for point in _points(kind)) if name not in taken]


def load(kind: str, name: str, *, built_in: Collection[str] = ()) -> Any:
    """The part that an installed package registers as ``name`` under ``dialrl.<kind>``.

    Raises UsageError naming the package for a name that is taken or a part that does not load, KeyError for no such.
    """
    if (kind, name) not in _loaded:
        named = [point for point in _points(kind) if point.name == name]
        if not named:
            raise KeyError(name)
        if name in built_in or len(named) > 1:
            raise UsageError(
                f"The installed package '{_package(named[-1])}' registers {kind} name '{name}', which is taken. Rename"
                " it in that package's entry points."
            )
        _loaded[kind, name] = _load(kind, named[0])
    return _loaded[kind, name]


def survey(kind: str, *, built_in: Collection[str] = ()) -> list[Installed]:
    """All that installed packages register under ``kind``, each loaded; what is broken is told, never raised."""
    found = []
    for point in _points(kind):
        try:
            part, fault = load(kind, point.name, built_in=built_in), None
        except UsageError as error:
            part, fault = None, str(error)
        found.append(Installed(kind, point.name, _package(point), part, fault))
    return found


def find(kind: str, name: str, *, built_in: BuiltIn) -> Any:
    """The part ``name`` of ``kind`` ("environments", "judges" ...). Raises UsageError with the nearest known name."""
    if name in built_in:
        module, attribute = built_in[name]
        return getattr(import_module(module), attribute)
    try:
        return load(kind, name)
    except KeyError:
        known = [*built_in, *installed_names(kind, built_in=built_in)]
        raise UsageError(f"'{name}' is none of the {kind}.{nearest(name, known)} Known: {', '.join(known)}.") from None


def make(kind: str, name: str, options: Mapping[str, Any], *, built_in: BuiltIn) -> Any:
    """The part ``name``, called with ``options``.

    Raises UsageError for options it does not take, and, naming the package, for an installed part that cannot be made.
    """
    factory = find(kind, name, built_in=built_in)
    _check_options(f"{kind} '{name}'", factory, options)
    if name in built_in:
        return factory(**options)
    try:
        return factory(**options)
    except DialrlError:
        raise
    except Exception as error:
        whose = next((_package(point) for point in _points(kind) if point.name == name), name)
        raise UsageError(
            f"{kind} '{name}' of the installed package '{whose}' cannot be made with the options {dict(options)}:"
            f" {type(error).__name__}: {_said(error)}. This is for that package, or its options, to mend."
        ) from error


def _check_options(what: str, factory: Any, options: Mapping[str, Any]) -> None:
    """Raise UsageError for a key that ``factory`` does not take, with the nearest one that it does."""
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):  # a callable without a signature says itself what it does not take
        return
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return
    by_name = [p for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)]
    known = [parameter.name for parameter in by_name]
    for key in options:
        if key not in known:
            takes = f"It takes: {', '.join(known)}." if known else "It takes none."
            raise UsageError(
                f"{what} was given the options {dict(options)}: it does not take '{key}'.{nearest(key, known)} {takes}"
            )
    lacking = [p.name for p in by_name if p.default is p.empty and p.name not in options]
    if lacking:
        raise UsageError(f"{what} was given the options {dict(options)}; it needs {', '.join(lacking)} too.")


def _points(kind: str) -> list[EntryPoint]:
    return list(entry_points(group=f"dialrl.{kind}"))


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist else point.value


def _said(error: Exception) -> str:
    if isinstance(error, ValidationError):
        return "; ".join(fault["msg"].removeprefix("Value error, ") for fault in error.errors())
    return str(error)


def _load(kind: str, point: EntryPoint) -> Any:
    try:
        return point.load()
    except Exception as error:
        raise UsageError(
            f"The installed package '{_package(point)}' registers {kind} name '{point.name}' as {point.value}, which"
            f" does not load: {type(error).__name__}: {_said(error)}. This is for that package to"
            " mend, or uninstall it."
        ) from error
