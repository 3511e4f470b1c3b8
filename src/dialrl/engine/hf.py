"""The embedded engine ``hf``: transformers in this process, block by block, deterministic by construction.

A call takes the requests of one fixed block of dialogues. Keys and values are kept from one turn of the block to the
next: a request that continues what its dialogue's row holds is computed from there, any other from its start. Results
depend on the calls made, never on timing. Not here: templates, text, and which dialogues form a block.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dialrl.engine.base import EngineCapabilities, Generation, GenerationRequest, SamplingSettings
from dialrl.engine.decoding import BlockDecoder, Drawn
from dialrl.engine.row_cache import RowCache
from dialrl.engine.row_plan import Row, plan_rows
from dialrl.engine.sampling import check_settings, uniforms
from dialrl.errors import InputError, NumericalError, RunError
from dialrl.model.digest import policy_digest
from dialrl.model.loading import LoadingSettings, load_model, load_tokenizer, model_directory
from dialrl.model.stopping import stop_ids as stop_ids_of
from dialrl.model.template import ChatTemplate
from dialrl.model.weights import copy_weights


class HfEngine:
    """Draws replies from a transformers causal language model. ``stop_ids`` end a reply and are part of it.

    Raises UsageError for a model with layers that it cannot serve, InputError for requests that cannot be computed,
    NumericalError when the model's probabilities are not finite.
    """

    def __init__(self, model: Any, *, stop_ids: Sequence[int], policy_digest: str = "") -> None:
        self.model = model.eval()
        self.stop_ids = tuple(stop_ids)
        self.policy_digest = policy_digest
        self._vocabulary = model.get_input_embeddings().weight.shape[0]
        self.capabilities = EngineCapabilities(
            schedule="block",
            token_ids=True,
            logprobs=True,
            deterministic=model.device.type == "cpu",
            context_limit_tokens=getattr(model.config.get_text_config(), "max_position_embeddings", None),
        )
        self._cache = RowCache()
        self._rows: list[Row] = []
        self._decoder = BlockDecoder(model, self._cache, self.stop_ids)

    @classmethod
    def open(
        cls,
        policy: str | Path,
        settings: LoadingSettings | None = None,
        template_options: Mapping[str, Any] | None = None,
    ) -> "HfEngine":
        """An engine for a policy directory, a transformers directory or a hub name."""
        settings = settings or LoadingSettings()
        directory = model_directory(policy)
        tokenizer = load_tokenizer(directory, trust_remote_code=settings.trust_remote_code)
        template = ChatTemplate(tokenizer, template_options)  # what cannot render is refused before weights load
        model = load_model(directory, settings)
        stops = stop_ids_of(template, model)
        return cls(model, stop_ids=stops, policy_digest=policy_digest(directory))

    def generate_block(self, requests: Sequence[GenerationRequest], sampling: SamplingSettings) -> list[Generation]:
        """One reply a request, in order. Requests of unfinished dialogues of one block come together, turn after turn.

        A request whose context leaves no room for a token gives an empty reply with ``finish_reason`` "length".
        """
        check_settings(sampling)
        if self.model is None:
            raise RunError("The engine 'hf' was closed and asked for a reply. Open another one.")
        limits = [self._reply_limit(request, sampling) for request in requests]
        asked = [index for index, limit in enumerate(limits) if limit > 0]
        replies = [Generation([], [], "length", len(request.prompt_ids), 0) for request in requests]
        if asked:
            with torch.inference_mode():
                drawn = self._generate([requests[i] for i in asked], [limits[i] for i in asked], sampling)
            for index, reply in zip(asked, drawn, strict=True):
                replies[index] = reply
        return replies

    async def generate(self, request: GenerationRequest, sampling: SamplingSettings) -> Generation:
        """A block of one. An engine with the schedule "block" is better asked for whole blocks."""
        return self.generate_block([request], sampling)[0]

    def load_weights(self, policy: Path) -> None:
        """Take the weights of another policy of the same architecture; cached prefixes are dropped (field case 19)."""
        directory = model_directory(policy)
        copy_weights(self.model, directory)
        self.policy_digest = policy_digest(directory)
        self._drop_cache()

    def close(self) -> None:
        """Free the model and the cache; the engine cannot be used afterwards."""
        self.model = None
        self._cache, self._rows = RowCache(), []
        del self._decoder

    def _drop_cache(self) -> None:
        self._cache, self._rows = RowCache(), []
        self._decoder = BlockDecoder(self.model, self._cache, self.stop_ids)

    def _reply_limit(self, request: GenerationRequest, sampling: SamplingSettings) -> int:
        prompt_ids = request.prompt_ids
        if not prompt_ids or min(prompt_ids) < 0 or max(prompt_ids) >= self._vocabulary:
            raise InputError(
                f"Dialogue '{request.dialogue}': the prompt has {len(prompt_ids)} ids"
                + (f" from {min(prompt_ids)} to {max(prompt_ids)}" if prompt_ids else "")
                + f"; expected at least one, all from 0 to {self._vocabulary - 1} (the model's vocabulary)."
                " Check that tokenizer and model belong together."
            )
        own = request.max_reply_tokens
        most = sampling.max_reply_tokens if own is None else own
        limits = (sampling.context_limit_tokens, self.capabilities.context_limit_tokens)
        return min([most, *(limit - len(prompt_ids) for limit in limits if limit is not None)])

    def _generate(
        self, requests: Sequence[GenerationRequest], limits: Sequence[int], sampling: SamplingSettings
    ) -> list[Generation]:
        """Replies for requests of which each has room for a token."""
        plan = plan_rows(self._rows, requests)
        if plan.reuses_rows:
            self._cache.move(plan.moves)
        else:  # a new block starts from nothing, so that no earlier block can move a bit of it
            self._drop_cache()
        ordered = [requests[index] for index in plan.requests]
        limits_R = np.asarray([limits[index] for index in plan.requests])
        logits_RV = self._decoder.prefill(
            [request.prompt_ids[start:] for request, start in zip(ordered, plan.starts, strict=True)], plan.starts
        )
        drawn = self._decoder.decode(
            logits_RV,
            np.asarray([len(request.prompt_ids) for request in ordered]),
            uniforms([request.seed for request in ordered], int(limits_R.max())),
            limits_R,
            sampling,
        )
        replies = [_generation(request, drawn, row, plan.starts[row]) for row, request in enumerate(ordered)]
        self._rows = [_row_after(ordered[row], replies[row]) for row in drawn.order]
        by_index = dict(zip(plan.requests, replies, strict=True))
        return [by_index[index] for index in range(len(requests))]


def _generation(request: GenerationRequest, drawn: Drawn, row: int, cached_tokens: int) -> Generation:
    length = int(drawn.lengths_R[row])
    logprobs = drawn.logprobs_RT[row, :length]
    if not np.isfinite(logprobs).all():
        place = int(np.argmin(np.isfinite(logprobs)))
        raise NumericalError(
            f"Dialogue '{request.dialogue}': the policy's probabilities are not finite at token {place} of the reply"
            f" (after {len(request.prompt_ids)} prompt tokens). Its weights are broken: start from an earlier policy."
        )
    return Generation(
        drawn.tokens_RT[row, :length].tolist(),
        logprobs.tolist(),
        "stop" if drawn.stopped_R[row] else "length",
        len(request.prompt_ids),
        cached_tokens,
    )


def _row_after(request: GenerationRequest, reply: Generation) -> Row:
    """The last token of a reply was drawn and never computed: the next turn begins with it."""
    return Row(request.dialogue, [*request.prompt_ids, *reply.reply_ids[:-1]])
