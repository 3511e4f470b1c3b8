"""All presets by name: the built-in table and those of installed packages (entry points ``dialrl.presets``)."""

import textwrap
from collections.abc import Mapping

from dialrl.advantage.presets.a2tgpo import A2TGPO
from dialrl.advantage.presets.base import Preset
from dialrl.advantage.presets.dialogue_level import (
    DR_GRPO,
    GRPO,
    REINFORCE_PLUS_PLUS,
    REINFORCE_PLUS_PLUS_BASELINE,
    RLOO,
)
from dialrl.advantage.presets.igpo import IGPO
from dialrl.advantage.presets.itpo import ITPO
from dialrl.advantage.presets.mapo import MAPO
from dialrl.advantage.presets.mica import MICA
from dialrl.advantage.presets.mixed_level import GIGPO, MT_GRPO
from dialrl.advantage.presets.single_level import BATCH_ONLY, GROUP_ONLY, TURN_ONLY
from dialrl.config import nearest
from dialrl.errors import UsageError
from dialrl.plugins import Installed, installed_names, load, survey

BUILT_IN: tuple[Preset, ...] = (
    MAPO,
    MICA,
    TURN_ONLY,
    GROUP_ONLY,
    BATCH_ONLY,
    GRPO,
    DR_GRPO,
    RLOO,
    REINFORCE_PLUS_PLUS,
    REINFORCE_PLUS_PLUS_BASELINE,
    IGPO,
    A2TGPO,
    MT_GRPO,
    GIGPO,
    ITPO,
)


_BY_NAME = {preset.name: preset for preset in BUILT_IN}


def known_presets() -> list[str]:
    """Names of the built-in presets and of those that installed packages register; loads none of these."""
    return [*_BY_NAME, *installed_names("presets", built_in=_BY_NAME)]


def preset(name: str) -> Preset:
    """The preset ``name``. Raises UsageError with the nearest known name."""
    if name in _BY_NAME:
        return _BY_NAME[name]
    try:
        found = load("presets", name)
    except KeyError:
        known = known_presets()
        raise UsageError(f"Unknown preset '{name}'.{nearest(name, known)} Known: {', '.join(known)}.") from None
    if not isinstance(found, Preset):
        raise UsageError(f"The preset '{name}' of an installed package is a {type(found).__name__}, no Preset.")
    return found


def describe_presets() -> list[dict[str, str]]:
    """What ``dialrl advantage --list`` prints, one entry a preset.

    Beside name and ``description`` (all facts as wrapped text) each fact under its own key: formula, gamma, input,
    compared, bias, group of one, source. An installed preset that does not load has the key ``broken``: why.
    """
    built_in = [_described(preset.name, preset) for preset in BUILT_IN]
    return [*built_in, *(_installed(found) for found in survey("presets", built_in=_BY_NAME))]


def _installed(found: Installed) -> dict[str, str]:
    fault = found.fault
    if fault is None and not isinstance(found.part, Preset):
        fault = f"The installed package '{found.package}' registers a {type(found.part).__name__}, no Preset."
    if fault is None:
        return _described(found.name, found.part)
    return {"name": found.name, "description": _as_text({"broken": fault}), "broken": fault}


def _described(name: str, preset: Preset) -> dict[str, str]:
    return {"name": name, "description": _as_text(preset.facts()), **preset.facts()}


def _as_text(facts: Mapping[str, str]) -> str:
    indent = " " * 16
    lines = []
    for heading, text in facts.items():
        lines.append(textwrap.fill(text, 100, initial_indent=f"  {heading:<14}", subsequent_indent=indent))
    return "\n".join(lines)
