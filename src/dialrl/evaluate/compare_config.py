"""Configuration of ``dialrl compare``. Not here: any comparison."""

from typing import Literal

from dialrl.config import StageConfig, operational, semantic
from dialrl.state.rules import StopRules


class CompareConfig(StageConfig):
    """What is compared, and how surely (docs/stages/compare.md)."""

    what: Literal["auto", "scores", "advantages"] = semantic(
        "auto", help="auto: advantages of files made from the same returns, else scores on the same scenarios."
    )
    pairs: Literal["first", "all"] = semantic("first", help="first: each against the first file; all: every two.")
    until: Literal["stop", "end"] = semantic("stop", help="stop: turns after stop_turn do not count.")
    stop: StopRules = semantic(StopRules(), help="Rules that name the ending of dialogues stopped by a replayed rule.")
    most_changed: int = semantic(10, ge=0, help="advantages: how many of the most changed dialogues are listed.")
    confidence: float = semantic(0.95, gt=0.0, lt=1.0, help="Confidence of the intervals.")
    power: float = semantic(0.8, gt=0.0, lt=1.0, help="Power of the smallest detectable difference.")
    resamples: int = semantic(10_000, ge=1, help="Bootstrap resamples of scenarios, and random sign patterns.")
    seed: int = semantic(0, ge=0, help="Seed of both.")
    batch_rows: int = operational(65_536, ge=1, help="Rows held in memory at a time (whole groups).")
