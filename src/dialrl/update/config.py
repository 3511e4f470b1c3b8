"""Options of the stage ``update``: loss, optimiser, schedule, and how much work goes through the model at once.

Everything that cannot work is refused here, before a model loads (field case 16). Not here: what the numbers mean
(``losses/``, ``docs/stages/update.md``); the run's total steps, the inputs and the output, which are arguments.
"""

from pathlib import Path
from typing import Literal, Self

from pydantic import model_validator

from dialrl.config import StageConfig, operational, semantic
from dialrl.errors import UsageError
from dialrl.trajectory.outcome_labels import OutcomeRange, range_fault

LossName = Literal["ppo", "gspo", "cispo", "reinforce", "sft", "outcome"]
AggregationName = Literal["token", "turn", "dialogue", "dialogue-sum-constant"]
ScheduleName = Literal["constant", "linear", "cosine"]

DEFAULT_CLIP: dict[str, tuple[float, float]] = {"ppo": (0.2, 0.28), "gspo": (3e-4, 4e-4), "cispo": (0.2, 0.28)}


class UpdateConfig(StageConfig):
    """Options of ``dialrl update``. Defaults suit full fine-tuning of 1B-32B models, as in the papers."""

    loss: LossName = semantic(
        "ppo", help="ppo, gspo, cispo, reinforce, sft on chosen dialogues; outcome: a reward model"
    )
    aggregation: AggregationName = semantic("token", help="how token losses become one number")
    dialogue_token_limit: int | None = semantic(
        None, ge=1, help="tokens a dialogue can have: the constant of dialogue-sum-constant"
    )
    clip_low: float | None = semantic(None, gt=0, lt=1, help="lower clip width (default .2; gspo 3e-4)")
    clip_high: float | None = semantic(None, gt=0, help="upper clip width (default .28; gspo 4e-4)")
    dual_clip: float = semantic(10.0, gt=1, help="ppo: bound of the loss per unit of negative advantage")
    gspo_level: Literal["dialogue", "turn"] = semantic("dialogue", help="gspo: tokens that share one ratio")
    old_logprobs: Literal["recompute", "sampler"] = semantic(
        "recompute", help="pi_old by the trainer, with the sampler's mismatch corrected; or the sampler's own"
    )
    importance_cap: float = semantic(2.0, gt=0, help="upper bound C of the weight pi_old / pi_sampler")
    reference: Path | None = semantic(None, help="frozen policy of the KL term, and of loss outcome")
    kl_coefficient: float = semantic(0.0, ge=0, help="weight of the KL term in the loss")
    kl_loss: Literal["k1", "k2", "k3"] = semantic("k2", help="estimator of the KL term: k2 or k3 (k1 is refused)")
    entropy_bonus: float = semantic(0.0, ge=0, help="weight of the mean entropy, subtracted from the loss")
    truncated: Literal["train", "mask"] = semantic("train", help="whether replies cut by length are trained")
    drop_degenerate: bool = semantic(False, help="leave tokens whose advantage is exactly 0 out of every mean")
    choose: Literal["positive", "all"] = semantic(
        "positive", help="sft: dialogues whose advantages sum to more than 0, or all"
    )
    outcome_beta: float = semantic(0.01, gt=0, help="outcome: beta of sigmoid(beta x sum of log-ratios)")
    outcome_range: OutcomeRange | None = semantic(
        None, help="outcome: outcomes that count as 0 and 1, linear in between (default: they are in [0, 1])"
    )
    temperature: float | None = semantic(
        None, gt=0, help="sampling temperature of an input whose lineage does not state it"
    )

    epochs: int = semantic(1, ge=1, help="passes over the input")
    mini_batch_dialogues: int | None = semantic(None, ge=1, help="dialogues an optimiser step (default: all)")
    learning_rate: float = semantic(1e-6, gt=0, help="peak learning rate")
    schedule: ScheduleName = semantic("constant", help="learning rate over the run's total steps")
    warmup_steps: int = semantic(0, ge=0, help="steps of linear warm-up")
    final_learning_rate_share: float = semantic(0.0, ge=0, le=1, help="share of the peak that decay ends at")
    beta1: float = semantic(0.9, ge=0, lt=1, help="AdamW: decay of the first moment")
    beta2: float = semantic(0.999, ge=0, lt=1, help="AdamW: decay of the second moment")
    epsilon: float = semantic(1e-8, gt=0, help="AdamW: term added to the denominator")
    weight_decay: float = semantic(0.0, ge=0, help="AdamW: decoupled decay of matrices")
    max_gradient_norm: float = semantic(1.0, gt=0, help="gradients are scaled down to this norm")
    fresh_optimizer: bool = semantic(False, help="ignore the trainer state beside the input policy")
    precision: Literal["fp32", "bf16"] = semantic("fp32", help="bf16: matrix products and saved weights in bfloat16")
    lora_rank: int | None = semantic(None, ge=1, help="train a low-rank adapter of this rank (needs the extra peft)")
    lora_alpha: float = semantic(32.0, gt=0, help="LoRA: the adapter's product is scaled by lora_alpha / lora_rank")
    seed: int = semantic(0, ge=0, help="seed of the order of dialogues, and of a fresh adapter")

    max_sequence_tokens: int | None = semantic(None, ge=2, help="longest sequence (default: the model's limit)")
    overlong: Literal["refuse", "split"] = semantic("refuse", help="a longer segment: refuse it, or split it at a turn")
    max_mismatch: float = semantic(1.0, gt=0, help="refuse when mean |log pi_trainer - log pi_sampler| exceeds this")
    max_lag: int | None = semantic(None, ge=0, help="refuse turns sampled more than this many steps ago")

    layout: Literal["auto", "packed", "padded"] = operational(
        "auto", help="sequences concatenated without padding, or padded rows; auto: as measured for such a model"
    )
    attention: Literal["auto", "sdpa", "flex", "varlen"] = operational(
        "auto", help="how packed sequences attend: one at a time, FlexAttention, or torch's variable-length kernel"
    )
    micro_batch_tokens: int = operational(8192, ge=1, help="tokens a forward pass; changes rounding only")
    micro_batch_dialogues: int | None = operational(None, ge=1, help="dialogues a forward pass at most")
    head_chunk_tokens: int | None = operational(
        None, ge=1, help="tokens whose logits exist at once (default: 512 MB; vocabularies under 1,024: 256 MB)"
    )
    gradient_checkpointing: Literal["auto", "on", "off"] = operational(
        "auto", help="recompute activations in the backward pass; auto: when they would not fit"
    )
    processes: int = operational(
        1, ge=1, help="processes of this machine the update is spread over; more than 1 starts torchrun"
    )
    device: str = operational("auto", help="cpu, cuda, cuda:N, or auto; of several processes: cuda:1,cuda:2")

    @property
    def names_its_reference(self) -> bool:
        """Whether the reference must stand here; in a run it is the policy that the run starts from."""
        return True

    @property
    def clip(self) -> tuple[float, float]:
        """Clip widths below and above 1, with the loss's own defaults."""
        low, high = DEFAULT_CLIP.get(self.loss, DEFAULT_CLIP["ppo"])
        return (
            low if self.clip_low is None else self.clip_low,
            high if self.clip_high is None else self.clip_high,
        )

    @property
    def is_policy_gradient(self) -> bool:
        """Whether the loss weighs what was sampled by its advantage: the sampler's log-probs matter then."""
        return self.loss not in ("sft", "outcome")

    @property
    def uses_reference(self) -> bool:
        return self.kl_coefficient > 0 or self.loss == "outcome"

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.aggregation == "dialogue-sum-constant" and self.dialogue_token_limit is None:
            raise ValueError("aggregation dialogue-sum-constant divides by dialogue_token_limit, which is not set")
        if self.kl_coefficient > 0 and self.reference is None:
            raise ValueError(f"kl_coefficient is {self.kl_coefficient}, but no reference policy is given")
        if self.kl_loss == "k1":
            raise ValueError("kl_loss k1 has an expected gradient of 0 and cannot be a loss; use k2 or k3")
        if self.loss in ("sft", "outcome") and self.entropy_bonus > 0:
            raise ValueError(f"entropy_bonus {self.entropy_bonus} has no place in loss {self.loss}; set it to 0")
        if self.loss == "outcome":
            self._trains_a_reward_model()
        if self.layout == "padded" and self.attention != "auto":
            raise ValueError(f"attention {self.attention} is a way of the packed layout, but layout is padded")
        named = len(self.device.split(","))
        if named not in (1, self.processes):
            raise ValueError(f"device names {named} devices for {self.processes} processes; name one each, or one kind")
        return self

    def _trains_a_reward_model(self) -> None:
        if self.reference is None and self.names_its_reference:
            raise ValueError("loss outcome compares with the frozen policy that the reward model began as: reference")
        if self.kl_coefficient > 0:
            raise ValueError(f"kl_coefficient {self.kl_coefficient} has no place in loss outcome; set it to 0")
        if self.truncated == "mask":
            raise ValueError("truncated mask has no place in loss outcome: it is one of the whole dialogue")
        if self.aggregation not in ("token", "dialogue"):
            raise ValueError(f"loss outcome is a mean over dialogues; aggregation {self.aggregation} does not fit it")
        if fault := range_fault(self.outcome_range):
            raise ValueError(fault)

    def check_total_steps(self, total_steps: int | None) -> None:
        """Raise UsageError when the schedule cannot run over ``total_steps`` steps."""
        if total_steps is None:
            if self.schedule != "constant":
                raise UsageError(f"schedule '{self.schedule}' runs over the whole run; give --total-steps.")
        elif total_steps < 1:
            raise UsageError(f"--total-steps got {total_steps}; expected at least 1.")
        elif self.warmup_steps >= total_steps and self.warmup_steps > 0:
            raise UsageError(
                f"warmup_steps is {self.warmup_steps}; expected less than the total steps, {total_steps} (of a run: its"
                " iterations). Run longer, or set warmup_steps=0 (in a pipeline: update.warmup_steps=0)."
            )
