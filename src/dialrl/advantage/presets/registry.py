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
from dialrl.plugins import load

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


def known_presets() -> dict[str, Preset]:
    """The built-in presets and those of installed packages, by name."""
    built_in = {preset.name: preset for preset in BUILT_IN}
    return {**built_in, **load("presets", built_in=built_in)}


def preset(name: str) -> Preset:
    """The preset ``name``. Raises UsageError with the nearest known name."""
    known = known_presets()
    if name not in known:
        raise UsageError(f"Unknown preset '{name}'.{nearest(name, known)} Known: {', '.join(known)}.")
    return known[name]


def describe_presets() -> list[dict[str, str]]:
    """What ``dialrl advantage --list`` prints, one entry a preset.

    Beside name and ``description`` (all facts as wrapped text) each fact under its own key: formula, gamma, input,
    compared, bias, group of one, source.
    """
    presets = known_presets().values()
    return [{"name": p.name, "description": _as_text(p.facts()), **p.facts()} for p in presets]


def _as_text(facts: Mapping[str, str]) -> str:
    indent = " " * 16
    lines = []
    for heading, text in facts.items():
        lines.append(textwrap.fill(text, 100, initial_indent=f"  {heading:<14}", subsequent_indent=indent))
    return "\n".join(lines)
