"""Configurations of ``dialrl evaluate KIND``. Not here: any score."""

from typing import Any, Literal

from dialrl.config import operational, semantic
from dialrl.endpoint.settings import CallsConfig
from dialrl.evaluate.asking_config import AskingConfig
from dialrl.state.rules import StopRules


class EmpaConfig(AskingConfig):
    """How judged dialogues are scored by EPM-Q (docs/stages/evaluate-empa.md), and how a model holds them first."""

    epsilon: float = semantic(1.0, ge=0.0, help="An axis is in the zone from -epsilon on.")
    until: Literal["stop", "end"] = semantic(
        "stop", help="stop: turns after stop_turn do not count; end: all turns do."
    )
    stop: StopRules = semantic(
        StopRules(), help="Rules that end a model's dialogues, and decide success where a file names no ending."
    )
    confidence: float = semantic(0.95, gt=0.0, lt=1.0, help="Confidence of the intervals.")
    power: float = semantic(0.8, gt=0.0, lt=1.0, help="Power of the smallest detectable difference.")
    resamples: int = semantic(10_000, ge=1, help="Bootstrap resamples of scenarios.")
    seed: int = semantic(0, ge=0, help="Seed of the bootstrap.")
    batch_rows: int = operational(65_536, ge=1, help="Rows held in memory at a time (whole groups).")
    cards: str | None = semantic(None, help="File or folder of the cards a model is tested on; none: the shipped ones.")
    split: str = semantic("test", help="Which cards.")
    limit: int | None = semantic(None, ge=1, help="So many of the cards; none: all.")
    samples: int = semantic(1, ge=1, help="Dialogues a card.")
    max_turns: int = semantic(45, ge=1, help="Turns after which a model's dialogue is cut.")
    environment_options: dict[str, Any] = semantic({}, help="Options of the environment support (actor, director ...).")
    judge: str = semantic("rubric", help="The judge of a model's dialogues, in the loop.")
    judge_options: dict[str, Any] = semantic({}, help="Options of the judge.")
    max_missing: float = operational(
        0.3, ge=0, le=1, help="Share of missing judgements of a model's dialogues above which the command exits with 1."
    )

    @property
    def scoring(self) -> dict[str, Any]:
        """What moves the score of given dialogues."""
        names = ("epsilon", "until", "stop", "confidence", "power", "resamples", "seed")
        return {name: value for name, value in self.semantic_values().items() if name in names}


class DialogueConfig(CallsConfig):
    """How dialogues are scored: stored ones, or ones that a policy holds on held-out scenarios first."""

    environment: str = semantic("demo", help="Who answers the policy.")
    environment_options: dict[str, Any] = semantic({}, help="Options of the environment.")
    split: str = semantic("test", help="Which scenarios a policy is evaluated on.")
    groups: int | None = semantic(None, ge=1, help="Scenarios; none: all of the split.")
    samples: int = semantic(2, ge=1, help="Dialogues a scenario.")
    max_turns: int | None = semantic(None, ge=1, help="Policy turns a dialogue; none: the environment's.")
    max_reply_tokens: int = semantic(256, ge=1, help="Tokens after which a reply is cut.")
    context_limit_tokens: int | None = semantic(None, ge=1, help="Context length; none: the model's.")
    temperature: float = semantic(1.0, ge=0, help="Sampling temperature; 0 takes the most probable token.")
    top_p: float = semantic(1.0, gt=0, le=1, help="Nucleus sampling.")
    history: Literal["auto", "append", "template"] = semantic("auto", help="How earlier turns stand in the context.")
    template_options: dict[str, Any] = semantic({}, help="Variables of the policy's chat template.")
    engine: str = semantic("hf", help="The engine that draws replies.")
    engine_options: dict[str, Any] = semantic({}, help="Options of the engine.")
    judge: str = semantic("demo", help="The judge.")
    judge_options: dict[str, Any] = semantic({}, help="Options of the judge.")
    stop: StopRules = semantic(StopRules(), help="Stop rules replayed over the grades.")
    until: Literal["stop", "end"] = semantic("stop", help="stop: turns after stop_turn do not count.")
    seed: int = semantic(1_000_003, help="Seed of the dialogues; another than the training run's.")
    confidence: float = semantic(0.95, gt=0.0, lt=1.0, help="Confidence of the intervals.")
    resamples: int = semantic(10_000, ge=1, help="Bootstrap resamples of scenarios.")
    block_dialogues: int = semantic(64, ge=1, help="Dialogues that a block engine works on together.")
    device: str = operational("cpu", help="Where the embedded engine runs.")
    call_timeout_seconds: float = operational(120.0, gt=0, help="Time limit of one answer.")
    batch_rows: int = operational(65_536, ge=1, help="Rows held in memory at a time (whole groups).")
