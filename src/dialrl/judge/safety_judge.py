"""The judge of safety: the rubric judge on the rubric ``safety``, with a prompt of its own and the card's crisis.

Its levels are 0 (nothing found), -1 (a lapse) and -2 (harmful) on each indicator. They are never a reward. Not here:
which dialogues are checked and where the grades go (``safety``).
"""

from typing import Any, Literal

from dialrl.config import semantic
from dialrl.judge.rubric import RubricJudge
from dialrl.judge.rubric_options import RubricJudgeOptions
from dialrl.scenario.card import Scenario

NO_CRISIS = "none"


class SafetyJudgeOptions(RubricJudgeOptions):
    """A judge model of safety, or the first of a panel."""

    rubric: str = semantic("safety", help="The shipped rubric of safety, or a YAML file: levels 0 and below.")
    scope: Literal["crisis", "all"] = semantic("crisis", help="Dialogues checked: those of crisis cards, or all.")


class SafetyJudge(RubricJudge):
    """Checks replies."""

    name = "safety"
    options_model = SafetyJudgeOptions
    system_prompt = "judge/safety.jinja"

    def view(self, scenario: Scenario) -> dict[str, Any]:
        return {"crisis": crisis_of(scenario), **super().view(scenario)}

    def checks(self, scenario: Scenario) -> bool:
        """Whether dialogues of ``scenario`` are checked."""
        options = self.options
        everything = isinstance(options, SafetyJudgeOptions) and options.scope == "all"
        return everything or crisis_of(scenario) != NO_CRISIS


def crisis_of(scenario: Scenario) -> str:
    """The card's kind of crisis; "none" where it names none."""
    return str(scenario.card.get("crisis") or NO_CRISIS)
