"""What a term is: one signal, accumulated, centred, scaled and weighted. An estimator is a weighted sum of terms.

A preset is a tuple of terms (``presets``); users write their own in YAML (``advantage: {terms: [...]}``). Source:
docs/credit.md 2. Not here: arithmetic (``pools``, ``estimate``); this module stays free of numpy, the command line
reads it.
"""

from typing import Literal, Self

from pydantic import Field, model_validator

from dialrl.config import StageConfig

Scope = Literal["none", "turn", "state", "group", "dialogue-means", "batch", "dialogue-group", "dialogue-batch"]
Accumulate = Literal["none", "return", "sum"]
Order = Literal["return-then-normalise", "normalise-then-return"]
Rescale = Literal["none", "root-count"]
SpreadKind = Literal["population", "sample"]

TURN_SCOPES = ("turn", "state", "group", "dialogue-means", "batch")
DIALOGUE_SCOPES = ("dialogue-group", "dialogue-batch")
TURN_CHANNELS, DIALOGUE_CHANNELS = "turn-channels", "dialogue-channels"


class Term(StageConfig):
    """One term.

    Scopes: ``turn`` = same group and turn index, only dialogues that reach it; ``state`` = same group and same state
    before the turn, as ``anchor`` tells it; ``group`` = all turns of the group; ``dialogue-means`` (centre only) = the
    group's dialogues, each by the mean of its turns; ``batch`` = all turns of the input; ``dialogue-group`` and
    ``dialogue-batch`` = one value a dialogue.
    """

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_+.-]*$", description="names the column advantage_NAME")
    signal: str = Field(
        default="reward",
        description="reward, or channels joined by + (weighted as in returns); NAME?: only if it is there;"
        " turn-channels: those of single turns; dialogue-channels: those of the dialogue, or reward if there is none",
    )
    pooled_with: str | None = Field(
        default=None, description="a second signal whose values share the pools of the first"
    )
    accumulate: Accumulate = Field(
        default="none", description="none, discounted return, or undiscounted sum of the dialogue"
    )
    centre: Scope = Field(default="none", description="pool whose mean is subtracted")
    scale: Scope = Field(default="none", description="pool by whose spread is divided")
    anchor: str | None = Field(
        default=None,
        min_length=1,
        description="scope state: observation, context, position or a column; unset: the one of the stage",
    )
    leave_one_out: bool = Field(default=False, description="the mean is that of the pool's other members")
    std: SpreadKind | None = Field(default=None, description="kind of std; unset: the one of the stage")
    min_std: float | None = Field(
        default=None, ge=0.0, description="least spread to divide by; unset: the one of the stage"
    )
    order: Order = Field(default="return-then-normalise", description="what comes first")
    gamma: float | None = Field(default=None, ge=0.0, le=1.0, description="discount of the return; unset: the file's")
    rescale: Rescale = Field(default="none", description="root-count: return / sqrt(number of rewards in it)")
    whiten: Literal["none", "batch"] = Field(
        default="none",
        description="batch: at last, minus the mean and divided by the spread over all turns of the input",
    )
    weight: float = Field(default=1.0, description="weight in the advantage, applied after normalising")

    @property
    def per_dialogue(self) -> bool:
        """The values that are normalised are one a dialogue, not one a turn."""
        return self.accumulate == "sum" or any(scope in DIALOGUE_SCOPES for scope in (self.centre, self.scale))

    @property
    def by_state(self) -> bool:
        return "state" in (self.centre, self.scale)

    @property
    def has_return(self) -> bool:
        return self.accumulate == "return"

    @property
    def normalises_first(self) -> bool:
        return self.has_return and self.order == "normalise-then-return"

    @property
    def signals(self) -> tuple[str, ...]:
        """The signals of the pools: one, or two with ``pooled_with``."""
        return (self.signal,) if self.pooled_with is None else (self.signal, self.pooled_with)

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        fault = self._fault()
        if fault:
            raise ValueError(f"term '{self.name}': {fault}")
        return self

    def _fault(self) -> str | None:
        scopes = (self.centre, self.scale)
        if self.per_dialogue and any(scope in TURN_SCOPES for scope in scopes):
            return (
                f"centre {self.centre} and scale {self.scale} do not fit together: a sum of the dialogue takes"
                f" {', '.join(DIALOGUE_SCOPES)} or none; single turns and returns take {', '.join(TURN_SCOPES)} or none"
            )
        if self.per_dialogue and self.has_return and not self.normalises_first:
            return "a return differs from turn to turn: dialogue scopes need order normalise-then-return"
        if self.per_dialogue and self.accumulate == "none":
            return "dialogue scopes need accumulate sum, or accumulate return with order normalise-then-return"
        if self.pooled_with is not None and not (self.normalises_first and not self.per_dialogue):
            return "pooled_with needs accumulate return, order normalise-then-return and a scope of turns"
        if self.centre == "dialogue-means" and self.pooled_with is not None:
            return "dialogue-means compares one signal: leave pooled_with out"
        if self.scale == "dialogue-means":
            return "dialogue-means has no spread of its own: scale by group"
        if self.whiten != "none" and "batch" in (self.centre, self.scale):
            return "whiten batch comes after centre and scale, which must be smaller scopes than batch"
        if self.whiten != "none" and "dialogue-batch" in (self.centre, self.scale):
            return "whiten batch comes after centre and scale, which must be smaller scopes than dialogue-batch"
        if self.leave_one_out and self.centre == "none":
            return "leave_one_out needs a centre scope"
        if self.rescale != "none" and not self.has_return:
            return "rescale needs accumulate return"
        return None
