"""What a preset is: an estimator as data, with what a reader must know before using it. Not here: any arithmetic."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from dialrl.advantage.terms import Term

UNEVEN_LENGTHS = (
    "Dialogues of different length: late turns are compared only with the dialogues that reach them, so credit for"
    " lasting longer (or for ending sooner) is given at the turns where all are still there, and none at the end"
    " (docs/credit.md 4)."
)


@dataclass(frozen=True)
class Preset:
    """An estimator by name. ``gamma`` is the discount it was published with, if it has a return of ``reward``."""

    name: str
    formula: str
    source: str
    compared: str
    bias: str
    group_of_one: str
    terms: tuple[Term, ...]
    gamma: float | None = None
    variants: Mapping[str, tuple[Term, ...]] = field(default_factory=dict)
    needs: str = ""

    def facts(self) -> dict[str, str]:
        """What to know, by heading, in reading order."""
        gamma = "" if self.gamma is None else f"{self.gamma:g} as published; a file made with another needs --gamma"
        facts = {
            "formula": self.formula,
            "gamma": gamma,
            "input": self.needs,
            "compared": self.compared,
            "bias": self.bias,
            "group of one": self.group_of_one,
            "source": self.source,
        }
        return {heading: text for heading, text in facts.items() if text}
