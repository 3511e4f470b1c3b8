"""Users' own environments, judges, engines, channels, presets and retrievers, found through entry points.

``load(kind)`` maps names to loaded objects of the group ``dialrl.<kind>``. Not here: the built-in ones, which each
package lists itself; a user's name may not hide a built-in one.
"""

from collections.abc import Iterable
from importlib.metadata import entry_points
from typing import Any

from dialrl.errors import UsageError


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
