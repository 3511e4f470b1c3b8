"""Configuration of ``dialrl advantage``. Not here: what the presets are (``presets``) and any arithmetic."""

from typing import Literal, Self

from pydantic import model_validator

from dialrl.advantage.terms import SpreadKind, Term
from dialrl.config import StageConfig, operational, semantic

DEFAULT_PRESET = "mica"


class AdvantageConfig(StageConfig):
    """From returns to one advantage a turn: a preset, or terms of one's own."""

    preset: str | None = semantic(
        None, help=f"Estimator by name, default {DEFAULT_PRESET}; --list prints all with their formulas and biases."
    )
    terms: tuple[Term, ...] = semantic((), help="Own terms instead of a preset (YAML only).")
    gamma: float | None = semantic(
        None, ge=0.0, le=1.0, help="Discount of the returns inside the terms; recomputes them where the file's differs."
    )
    turn_weight: float | None = semantic(
        None, ge=0.0, le=1.0, help="Weight of the term 'turn' of a preset of two terms; the other gets the rest."
    )
    centre: tuple[str, ...] = semantic(
        (), help="Centre scope instead of the preset's: SCOPE, or TERM=SCOPE for one term. Repeatable."
    )
    scale: tuple[str, ...] = semantic(
        (), help="Scale scope instead of the preset's: SCOPE, or TERM=SCOPE for one term. Repeatable."
    )
    leave_one_out: bool = semantic(False, help="Centre by the mean of the other members of the pool.")
    std: SpreadKind = semantic("population", help="Standard deviation: population (n) or sample (n - 1).")
    min_std: float = semantic(0.0, ge=0.0, help="Least spread to divide by: a nearly constant pool keeps small values.")
    rescale: Literal["none", "root-count"] = semantic(
        "none", help="root-count divides each return by the square root of the number of rewards in it."
    )
    anchor: str = semantic(
        "observation",
        min_length=1,
        help="Scope state (gigpo): what makes two turns the same state: observation (what the policy last read),"
        " context (all words so far), position (the judged state before the turn), or a column of the file.",
    )
    joint: bool = semantic(False, help="igpo: one pool for information gain and outcome (paper v1).")
    format_channel: bool = semantic(False, help="igpo: outcome alone in its pool, format centred and not scaled.")
    batch_rows: int = operational(65_536, ge=1, help="Rows held in memory at a time (whole groups).")

    @model_validator(mode="after")
    def _one_estimator(self) -> Self:
        if self.preset is not None and self.terms:
            raise ValueError(f"preset '{self.preset}' and own terms were both given; give one of them")
        names = [term.name for term in self.terms]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"the term name{'s' if len(twice) > 1 else ''} {', '.join(twice)} stand twice")
        if self.joint and self.format_channel:
            raise ValueError("joint and format_channel are two variants of one preset; give one of them")
        return self

    @property
    def estimator(self) -> str:
        """The name shown for this configuration: the preset's, or ``custom``."""
        return "custom" if self.terms else self.preset or DEFAULT_PRESET
