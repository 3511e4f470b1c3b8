"""Options of the judge ``information-gain`` (key ``judge_options``). Not here: what they do (``information_gain``)."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import field_validator

from dialrl.config import StageConfig, operational, semantic, validated
from dialrl.model.loading import Precision

DEFAULT_WRAPPER = "<think>What I have seen so far is enough to answer.</think>\n<answer>"


class ListeningOptions(StageConfig, ABC):
    """How a model is asked how much it believes in a text."""

    max_gold_tokens: int = semantic(64, help="Longest answer in tokens.", ge=1)
    overlong: Literal["refuse", "truncate"] = semantic("refuse", help="A longer answer: refuse, or score its start.")
    token_floor: float | None = semantic(None, help="Least log-prob of one token; none: no floor.")
    precision: Precision = semantic("float32", help="Precision of the policy's weights; the head is never narrower.")
    method: Literal["auto", "packed", "one-by-one"] = semantic(
        "auto", help="packed: one forward a dialogue; one-by-one: the reference; auto: packed where the model allows."
    )
    attention: Literal["auto", "split", "dense", "flex"] = operational(
        "auto",
        help="Attention of a packed forward: split by structure, a dense mask for models with an attention of their"
        " own, or torch's flex kernel (GPU); auto: split, else dense.",
    )
    device: str = operational("cpu", help="Where the policy runs: cpu, cuda.")
    token_budget: int = operational(8192, help="Tokens computed together.", ge=1)

    @abstractmethod
    def frame(self) -> tuple[str, str]:
        """The text before and after the text that is believed in."""

    @field_validator("token_floor")
    @classmethod
    def _is_a_log_prob(cls, value: float | None) -> float | None:
        if value is not None and value >= 0:
            raise ValueError("expected a log-prob, below 0")
        return value


class BeliefOptions(ListeningOptions):
    """What is asked of the policy at each cut of a dialogue."""

    targets: Literal["answers"] = semantic("answers", help="answers: those of the question; needs: see the page.")
    scorer: Literal["rollout", "frozen"] = semantic(
        "rollout", help="Whose belief: the policy's that made the dialogues (by digest), or any fixed policy's."
    )
    wrapper: str = semantic(DEFAULT_WRAPPER, help="What the policy would write before the answer; context, not scored.")
    closing: str = semantic("</answer>", help="What would follow the answer; it only decides where tokens end.")
    aliases: Literal["all", "first"] = semantic("all", help="all: the best accepted answer counts; first: the first.")
    max_aliases: int = semantic(16, help="Accepted answers scored, distinct after normalising, in order.", ge=1)

    def frame(self) -> tuple[str, str]:
        return self.wrapper, self.closing

    @property
    def alias_limit(self) -> int:
        return 1 if self.aliases == "first" else self.max_aliases


def belief_options(given: Mapping[str, Any]) -> BeliefOptions:
    """``judge_options`` as options. Raises UsageError naming a wrong key or value."""
    return validated(BeliefOptions, given, where="judge information-gain, judge_options")
