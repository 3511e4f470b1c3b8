"""Options of the judge ``information-gain`` over hidden needs (``judge_options.targets`` is ``needs``).

Not here: what they do (``information_gain_needs``).
"""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import field_validator

from dialrl.config import semantic, validated
from dialrl.judge.belief_options import ListeningOptions

PLACE = "{need}"


class NeedOptions(ListeningOptions):
    """Which need is hidden, among which others, and how the listener is asked for it."""

    targets: Literal["needs"] = semantic("needs", help="needs: what the cards keep from the policy.")
    scorer: Literal["frozen"] = semantic("frozen", help="The listener never learns.")
    listener: str | None = semantic(None, help="Directory or name of the listener; none: the policy given.")
    target_field: str | None = semantic(
        None, help="Field of the card that holds the need, such as person.inward; none: hopes (support), detail (demo)."
    )
    candidates: int = semantic(20, ge=2, help="Needs the listener chooses among, the right one included.")
    tau: float = semantic(1.0, gt=0.0, help="Divides the mean log-probs before the softmax over the needs.")
    line: str = semantic(
        "What you need most, without having said so, is {need}.", help="What the listener would say; {need} is scored."
    )
    quote_characters: int = semantic(
        20, ge=1, help="A user's line that holds this many letters of the need word for word earns nothing."
    )
    template_options: dict[str, Any] = semantic({}, help="Variables of the listener's chat template.")

    @field_validator("line")
    @classmethod
    def _has_one_place(cls, value: str) -> str:
        if value.count(PLACE) != 1:
            raise ValueError(f"expected one {PLACE} in it, where the need stands")
        return value

    def frame(self) -> tuple[str, str]:
        before, _, after = self.line.partition(PLACE)
        return before, after


def need_options(given: Mapping[str, Any]) -> NeedOptions:
    """``judge_options`` as options. Raises UsageError naming a wrong key or value."""
    return validated(NeedOptions, given, where="judge information-gain over needs, judge_options")
