"""Parts of installed packages (plugins): each is loaded, and a broken one is named with its package.

A part that nobody names breaks nothing, so a broken one is a warning; the pipeline's check fails where it is named.
"""

from collections.abc import Collection, Mapping

from dialrl import plugins
from dialrl.doctor.check import Check

AREA = "Plugins"


def installed_parts() -> list[Check]:
    """A line for every part that an installed package registers; none where there are no such packages."""
    return [_check(found) for kind, taken in _taken().items() for found in plugins.survey(kind, built_in=taken)]


def _check(found: plugins.Installed) -> Check:
    name = f"{found.kind.removesuffix('s')} {found.name}"
    if found.fault is None:
        return Check(AREA, name, "ok", f"of the package {found.package}", details={"package": found.package})
    advice = f"Mend or uninstall the package {found.package}; only what names '{found.name}' is affected."
    return Check(AREA, name, "warning", found.fault, advice, {"package": found.package})


def _taken() -> Mapping[str, Collection[str]]:
    """Built-in names by kind."""
    from dialrl import engine
    from dialrl.advantage.presets import registry as presets
    from dialrl.environment import registry as environments
    from dialrl.environment.search import retriever
    from dialrl.judge import registry as judges
    from dialrl.returns import channels

    taken: dict[str, Collection[str]] = {
        "environments": environments.BUILT_IN,
        "judges": judges.BUILT_IN,
        "engines": engine.BUILT_IN,
        "channels": [channel.name for channel in channels.BUILT_IN],
        "presets": [preset.name for preset in presets.BUILT_IN],
        "retrievers": retriever.BUILT_IN,
    }
    return taken
