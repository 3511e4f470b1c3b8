"""Parts by name: the built-in ones, and users' own environments, judges, engines, channels, presets and retrievers.

Users' parts come from installed packages through entry points of the group ``dialrl.<kind>``; a user's name may not
hide a built-in one. Not here: the lists of built-in parts; each package has its own.
"""

from collections.abc import Iterable, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from dialrl.config import nearest
from dialrl.errors import UsageError

BuiltIn = Mapping[str, tuple[str, str]]
"""Name to (module, attribute); the module is imported when the part is asked for."""


def load(kind: str, *, built_in: Iterable[str] = ()) -> dict[str, Any]:
    """Objects registered by installed packages under the entry-point group ``dialrl.<kind>``.

    Raises UsageError when a name hides one of ``built_in`` or stands twice.
    """
    taken = set(built_in)
    found: dict[str, Any] = {}
    for point in entry_points(group=f"dialrl.{kind}"):
        if point.name in taken:
            raise UsageError(
                f"The installed package '{point.dist.name if point.dist else point.value}' registers {kind} name"
                f" '{point.name}', which is taken. Rename it in that package's entry points."
            )
        taken.add(point.name)
        found[point.name] = point.load()
    return found


def find(kind: str, name: str, *, built_in: BuiltIn) -> Any:
    """The part ``name`` of ``kind`` ("environments", "judges" ...). Raises UsageError with the nearest known name."""
    if name in built_in:
        module, attribute = built_in[name]
        return getattr(import_module(module), attribute)
    installed = load(kind, built_in=built_in)
    if name not in installed:
        known = [*built_in, *installed]
        raise UsageError(f"'{name}' is none of the {kind}.{nearest(name, known)} Known: {', '.join(known)}.")
    return installed[name]


def make(kind: str, name: str, options: Mapping[str, Any], *, built_in: BuiltIn) -> Any:
    """The part ``name``, called with ``options``. Raises UsageError for options it does not take."""
    factory = find(kind, name, built_in=built_in)
    try:
        return factory(**options)
    except TypeError as error:
        raise UsageError(f"{kind} '{name}' was given the options {dict(options)}: {error}.") from None
