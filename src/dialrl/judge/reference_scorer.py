"""A frozen causal model, such as the reference policy: log-probs of sampled tokens, packed as training packs them.

Not here: which tokens (``sampled_tokens``), files (``reference_kl``, ``implicit_reward``).
"""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from dialrl.judge.reference_options import ReferenceOptions
from dialrl.model.digest import policy_digest
from dialrl.model.find import find_policy
from dialrl.model.layout import Layout, prepare_layout
from dialrl.model.loading import LoadingSettings, load_model, model_directory
from dialrl.model.logprobs import HeadSettings, check_head, token_logprobs
from dialrl.model.packing import TokenSequence

Floats = npt.NDArray[np.float64]


class ReferenceScorer:
    """A policy in a directory, loaded when it is first asked for log-probs.

    Asking raises UsageError for a model whose head is not a plain linear layer.
    """

    def __init__(self, policy: str | Path, options: ReferenceOptions) -> None:
        self._directory, self._options = model_directory(find_policy(policy)), options
        self.digest = policy_digest(self._directory)

    @cached_property
    def _model(self) -> Any:
        settings = LoadingSettings(device=self._options.device, precision=self._options.precision)
        model = load_model(self._directory, settings)
        check_head(model)
        return model

    @cached_property
    def _layout(self) -> Layout:
        return prepare_layout(self._model)

    @property
    def layout(self) -> str:
        """How sequences are laid out, and why."""
        return self._layout.sentence

    @property
    def vocabulary(self) -> int:
        """Token ids the model knows."""
        return int(self._model.get_input_embeddings().weight.shape[0])

    @property
    def limit_tokens(self) -> int | None:
        """The context the model was made for."""
        limit = getattr(self._model.config.get_text_config(), "max_position_embeddings", None)
        return None if limit is None else int(limit)

    def score(self, sequences: Sequence[TokenSequence], temperature: float) -> list[Floats]:
        """Log-probs of each sequence's marked tokens, at the temperature they were drawn at."""
        layout, budget = self._layout, self._options.token_budget
        return sequence_logprobs(self._model, layout, sequences, temperature, token_budget=budget)


def sequence_logprobs(
    model: Any, layout: Layout, sequences: Sequence[TokenSequence], temperature: float, *, token_budget: int
) -> list[Floats]:
    """log p of the marked tokens of each sequence under ``model``, logits divided by ``temperature``; (T,) each."""
    found = [np.zeros(0)] * len(sequences)
    marked = [index for index, sequence in enumerate(sequences) if len(sequence.trained_places)]
    for batch in layout.plan([sequences[index].input_length for index in marked], token_budget):
        members = [marked[place] for place in batch]
        inputs = layout.batch([sequences[index] for index in members], model.device)
        with torch.no_grad():
            logprobs = token_logprobs(model, inputs, HeadSettings(temperature)).logprobs_T.double().cpu().numpy()
        ends = np.cumsum([len(sequences[index].trained_places) for index in members])
        for index, part in zip(members, np.split(logprobs, ends[:-1]), strict=True):
            found[index] = part
    return found
