"""The model behind a belief: loaded once, packed or one by one, recomputed in float32 where it was not finite.

Not here: which dialogues and answers (``belief_tasks``), files (``information_gain``).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dialrl.errors import UsageError
from dialrl.judge.belief_options import ListeningOptions
from dialrl.model.belief.attention import AttentionName
from dialrl.model.belief.forward import can_branch, one_by_one, packed_beliefs
from dialrl.model.belief.gold import GoldAlias, GoldLimits, encode_gold
from dialrl.model.belief.tree import BeliefTask
from dialrl.model.digest import policy_digest
from dialrl.model.find import find_policy
from dialrl.model.loading import LoadingSettings, load_model, load_tokenizer, model_directory
from dialrl.model.logprobs import check_head
from dialrl.model.template import ChatTemplate

Floats = npt.NDArray[np.float64]
_OPENED = "<think>"


class BeliefScorer:
    """A policy that is asked for its belief. Raises UsageError for a model whose head is not a plain linear layer.

    ``template_options``: those of the rollout, whose headers the belief is asked after.
    """

    def __init__(
        self, policy: str | Path, options: ListeningOptions, template_options: Mapping[str, Any] | None = None
    ) -> None:
        self._directory = model_directory(find_policy(policy))
        self._options = options
        self.digest = policy_digest(self._directory)
        self.template = ChatTemplate(load_tokenizer(self._directory), template_options)
        self._model = self._load(options.precision)
        check_head(self._model)
        self.attention = self._choose_attention()
        self._wide_model: Any = None

    @property
    def packed(self) -> bool:
        """Whether one forward computes a whole dialogue."""
        return self.attention is not None

    @property
    def limit_tokens(self) -> int | None:
        """The context the model was made for."""
        limit = getattr(self._model.config.get_text_config(), "max_position_embeddings", None)
        return None if limit is None else int(limit)

    @property
    def header_ids(self) -> list[int]:
        """The header of a reply."""
        return self.template.encode(self.template.generation_prompt_text)

    def warnings(self) -> tuple[str, ...]:
        """What was chosen that costs time."""
        if self.packed or self._options.method != "auto":
            return ()
        return ("This model cannot be branched: every prefix was computed with every answer, one by one.",)

    def encode(self, alias: str, *, header: bool = False) -> GoldAlias:
        """Wrapper and answer as tokens; a think block that the template opens itself is not opened again.

        ``header``: the wrapper begins with the header of a reply, which the cuts do not hold then.
        """
        wrapper, closing = self._options.frame()
        before = wrapper.removeprefix(_OPENED) if self.template.opens_thinking else wrapper
        if header:
            before = self.template.generation_prompt_text + before
        limits = GoldLimits(self._options.max_gold_tokens, self._options.overlong)
        return encode_gold(self.template.tokenizer, alias, before=before, after=closing, limits=limits)

    def score(self, tasks: Sequence[BeliefTask]) -> list[Floats]:
        """Mean log-probs (cuts, aliases) of each task; what is not finite was computed once more in float32."""
        beliefs = self._score(self._model, tasks)
        again = [place for place, belief in enumerate(beliefs) if not np.isfinite(belief).all()]
        if again and self._options.precision != "float32":
            if self._wide_model is None:
                self._wide_model = self._load("float32")
            for place, belief in zip(again, self._score(self._wide_model, [tasks[p] for p in again]), strict=True):
                beliefs[place] = np.where(np.isfinite(beliefs[place]), beliefs[place], belief)
        return beliefs

    def _score(self, model: Any, tasks: Sequence[BeliefTask]) -> list[Floats]:
        floor = self._options.token_floor
        if self.attention is None:
            return one_by_one(model, tasks, token_floor=floor)
        budget = self._options.token_budget
        return packed_beliefs(model, tasks, token_budget=budget, token_floor=floor, attention=self.attention)

    def _choose_attention(self) -> AttentionName | None:
        """How a packed forward attends; None: every prefix on its own."""
        if self._options.method == "one-by-one":
            return None
        wanted = self._options.attention
        kinds: tuple[AttentionName, ...] = ("split", "dense") if wanted == "auto" else (wanted,)
        found = next((kind for kind in kinds if can_branch(self._model, kind)), None)
        if found is None and self._options.method == "packed":
            raise UsageError(
                f"{type(self._model).__name__} gives other log-probs in a packed forward (attention {wanted}) than on"
                " its own. Use method one-by-one, or auto."
            )
        return found

    def _load(self, precision: Any) -> Any:
        return load_model(self._directory, LoadingSettings(device=self._options.device, precision=precision))
