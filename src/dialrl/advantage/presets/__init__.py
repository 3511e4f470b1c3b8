"""Published estimators as data: one file or row each. Not here: how a term is computed (``estimate``)."""

from dialrl.advantage.presets.base import Preset
from dialrl.advantage.presets.registry import describe_presets, known_presets, preset

__all__ = ["Preset", "describe_presets", "known_presets", "preset"]
