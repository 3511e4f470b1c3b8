"""Settings of ``dialrl rollout``."""

from typing import Any, Literal

from pydantic import model_validator

from dialrl.config import operational, semantic
from dialrl.endpoint.settings import CallsConfig
from dialrl.state.rules import StopRules


class RolloutConfig(CallsConfig):
    """How dialogues are rolled out: which scenarios, how many, how replies are drawn, when a dialogue ends."""

    environment: str = semantic("demo", help="Who answers the policy.")
    environment_options: dict[str, Any] = semantic({}, help="Options of the environment.")
    split: str = semantic("train", help="Which scenarios: train, or a held-out split such as test.")
    groups: int = semantic(16, help="Groups: scenarios drawn, each with --samples dialogues.", ge=1)
    samples: int = semantic(8, help="Dialogues a group, from one opening line.", ge=1)
    max_turns: int | None = semantic(
        None, help="Policy turns after which a dialogue is cut; none: the environment's.", ge=1
    )
    max_reply_tokens: int = semantic(256, help="Tokens after which a reply is cut.", ge=1)
    context_limit_tokens: int | None = semantic(
        None, help="Context length at which a dialogue is cut; none: the model's."
    )
    temperature: float = semantic(1.0, help="Sampling temperature; 0 takes the most probable token.", ge=0)
    top_p: float = semantic(1.0, help="Nucleus sampling; below 1 the file cannot be trained on.", gt=0, le=1)
    top_k: int = semantic(0, help="Sample among the k most probable tokens; 0: all. Above 0: no training.", ge=0)
    min_p: float = semantic(
        0.0, help="Drop tokens below this share of the best one's probability. Above 0: no training."
    )
    history: Literal["auto", "append", "template"] = semantic(
        "auto", help="How earlier turns stand in the context: as sampled, or as the template renders them."
    )
    template_options: dict[str, Any] = semantic(
        {}, help="Variables of the policy's chat template (enable_thinking: false), or another chat_template."
    )
    grading: Literal["live", "after"] = semantic("after", help="live: the judge grades inside the loop.")
    judge: str = semantic("demo", help="The judge of live grading.")
    judge_options: dict[str, Any] = semantic({}, help="Options of the judge.")
    stop: StopRules = semantic(StopRules(), help="Rules that end a dialogue under live grading.")
    seed: int = semantic(0, help="Run seed: equal seeds give equal files.")
    iteration: int = semantic(0, help="Number of this rollout in a run: other scenarios and seeds each time.", ge=0)
    resample_degenerate: int = semantic(
        0, help="Draw up to N further groups in place of those whose rewards are all equal (needs live grading).", ge=0
    )
    broken_groups: Literal["keep", "drop"] = semantic(
        "keep", help="A group with a failed dialogue: keep its good dialogues, or leave the group out of training."
    )
    attempts: int = semantic(2, help="Times a dialogue is tried before its failure is recorded.", ge=1)
    max_failed: float = operational(
        0.1, help="Share of failed dialogues above which the command exits with 1.", ge=0, le=1
    )
    block_dialogues: int = semantic(64, help="Dialogues that a block engine works on together.", ge=1)
    call_timeout_seconds: float = operational(120.0, help="Time limit of one answer of the environment or judge.", gt=0)
    engine: str = semantic("hf", help="The engine that draws replies: hf, vllm, or openai (an endpoint).")
    engine_options: dict[str, Any] = semantic({}, help="Options of the engine.")
    dialogues_in_flight: int = operational(256, help="Dialogues side by side, of an engine that takes them so.", ge=1)
    device: str = operational("cpu", help="Where the embedded engine runs: cpu, cuda.")

    @model_validator(mode="after")
    def _needs_live_grades(self) -> "RolloutConfig":
        if self.resample_degenerate and self.grading != "live":
            raise ValueError("resample_degenerate needs the rewards of the groups: set grading to live")
        return self
