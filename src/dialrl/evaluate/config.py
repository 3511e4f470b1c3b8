"""Configurations of ``dialrl evaluate KIND``. Not here: any score."""

from typing import Literal

from dialrl.config import StageConfig, operational, semantic
from dialrl.state.rules import StopRules


class EmpaConfig(StageConfig):
    """How judged dialogues are scored by EPM-Q (empathy-model.md 4)."""

    epsilon: float = semantic(1.0, ge=0.0, help="An axis is in the zone from -epsilon on.")
    until: Literal["stop", "end"] = semantic(
        "stop", help="stop: turns after stop_turn do not count; end: all turns do."
    )
    stop: StopRules = semantic(StopRules(), help="Rules that decide success where the file names no ending.")
    confidence: float = semantic(0.95, gt=0.0, lt=1.0, help="Confidence of the intervals.")
    power: float = semantic(0.8, gt=0.0, lt=1.0, help="Power of the smallest detectable difference.")
    resamples: int = semantic(10_000, ge=1, help="Bootstrap resamples of scenarios.")
    seed: int = semantic(0, ge=0, help="Seed of the bootstrap.")
    batch_rows: int = operational(65_536, ge=1, help="Rows held in memory at a time (whole groups).")
