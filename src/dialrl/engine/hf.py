"""The embedded engine ``hf``: transformers in this process, block by block, deterministic by construction.

A call takes the requests of one fixed block of dialogues. Keys and values are kept from one turn of the block to the
next: a request that continues what its dialogue's row holds is computed from there, any other from its start. Results
depend on the calls made, never on timing. Not here: templates, text, and which dialogues form a block.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dialrl.engine.base import EngineCapabilities, Generation, GenerationRequest, SamplingSettings
from dialrl.engine.decoding import BlockDecoder, Drawn
from dialrl.engine.row_cache import RowCache
from dialrl.engine.sampling import check_settings, uniforms
from dialrl.errors import InputError, NumericalError, RunError
from dialrl.model.digest import policy_digest
from dialrl.model.loading import LoadingSettings, load_policy, model_directory
from dialrl.model.stopping import stop_ids as stop_ids_of
from dialrl.model.template import ChatTemplate
from dialrl.model.weights import copy_weights


@dataclass(frozen=True)
class _Row:
    """A row of the cache: the dialogue it belongs to, and the ids whose keys and values it holds."""

    dialogue: str
    ids: list[int]


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
        self._drop_cache()

    @classmethod
    def open(cls, policy: str | Path, settings: LoadingSettings | None = None) -> "HfEngine":
        """An engine for a policy directory, a transformers directory or a hub name."""
        directory = model_directory(policy)
        model, tokenizer = load_policy(directory, settings)
        stops = stop_ids_of(ChatTemplate(tokenizer), model)
        return cls(model, stop_ids=stops, policy_digest=policy_digest(directory))

    def generate_block(self, requests: Sequence[GenerationRequest], sampling: SamplingSettings) -> list[Generation]:
        """One reply a request, in order. Requests of unfinished dialogues of one block come together, turn after turn.

        A request whose context leaves no room for a token gives an empty reply with ``finish_reason`` "length".
        """
        check_settings(sampling)
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
        self._drop_cache()
        self.model = None

    def _drop_cache(self) -> None:
        self._cache = RowCache()
        self._rows: list[_Row] = []
        self._decoder = BlockDecoder(self.model, self._cache, self.stop_ids)

    def _reply_limit(self, request: GenerationRequest, sampling: SamplingSettings) -> int:
        if self.model is None:
            raise RunError("The engine 'hf' was closed and asked for a reply. Open another one.")
        prompt_ids = request.prompt_ids
        if not prompt_ids or min(prompt_ids) < 0 or max(prompt_ids) >= self._vocabulary:
            raise InputError(
                f"Dialogue '{request.dialogue}': the prompt has {len(prompt_ids)} ids"
                + (f" from {min(prompt_ids)} to {max(prompt_ids)}" if prompt_ids else "")
                + f"; expected at least one, all from 0 to {self._vocabulary - 1} (the model's vocabulary)."
                " Check that tokenizer and model belong together."
            )
        most = request.max_reply_tokens or sampling.max_reply_tokens
        limits = (sampling.context_limit_tokens, self.capabilities.context_limit_tokens)
        return min([most, *(limit - len(prompt_ids) for limit in limits if limit is not None)])

    def _generate(
        self, requests: Sequence[GenerationRequest], limits: Sequence[int], sampling: SamplingSettings
    ) -> list[Generation]:
        """Replies for requests of which each has room for a token."""
        kept = self._kept_rows(requests)
        if not kept:  # a new block starts from nothing, so that no earlier block can move a bit of it
            self._drop_cache()
        places = self._places(requests, kept)
        self._take_places(places, kept)
        starts = [len(self._rows[kept[index]].ids) if index in kept else 0 for index in places]
        ordered = [requests[index] for index in places]
        new_ids = [request.prompt_ids[start:] for request, start in zip(ordered, starts, strict=True)]
        limits_R = np.asarray([limits[index] for index in places])
        drawn = self._decoder.decode(
            self._decoder.prefill(new_ids, starts),
            np.asarray([len(request.prompt_ids) for request in ordered]),
            uniforms([request.seed for request in ordered], int(limits_R.max())),
            limits_R,
            sampling,
        )
        replies = [
            _generation(request, drawn, row, cached)
            for row, (request, cached) in enumerate(zip(ordered, starts, strict=True))
        ]
        self._rows = [_row_after(ordered[row], replies[row]) for row in drawn.order]
        by_index = dict(zip(places, replies, strict=True))
        return [by_index[index] for index in range(len(requests))]

    def _kept_rows(self, requests: Sequence[GenerationRequest]) -> dict[int, int]:
        """Row by request, where the row's ids are a real prefix of the prompt; one row serves one request."""
        row_of = {row.dialogue: number for number, row in enumerate(self._rows) if row.dialogue}
        kept = {}
        for index, request in enumerate(requests):
            row = row_of.get(request.dialogue)
            if row is not None and _is_prefix(self._rows[row].ids, request.prompt_ids):
                kept[index] = row
                del row_of[request.dialogue]
        return kept

    def _places(self, requests: Sequence[GenerationRequest], kept: dict[int, int]) -> list[int]:
        """Request by place: rows stay where they are, free places are filled in order.

        Where widths differ much, the widest come first, so that groups of the prefill have little padding.
        """
        placed = {row: index for index, row in kept.items() if row < len(requests)}
        moving = sorted((index for index, row in kept.items() if row >= len(requests)), key=lambda index: kept[index])
        fresh = [index for index in range(len(requests)) if index not in kept]
        others = iter(moving + fresh)
        places = [placed[place] if place in placed else next(others) for place in range(len(requests))]
        widths = [
            len(request.prompt_ids) - (len(self._rows[kept[index]].ids) if index in kept else 0)
            for index, request in enumerate(requests)
        ]
        uneven = max(widths) * len(widths) > 2 * sum(widths)
        return sorted(places, key=lambda index: -widths[index]) if uneven else places

    def _take_places(self, places: Sequence[int], kept: dict[int, int]) -> None:
        moves = [(place, kept[index]) for place, index in enumerate(places) if kept.get(index, place) != place]
        targets, sources = np.asarray(moves, dtype=np.int64).reshape(-1, 2).T
        self._cache.move(np.ascontiguousarray(targets), np.ascontiguousarray(sources))


def _is_prefix(ids: Sequence[int], prompt_ids: Sequence[int]) -> bool:
    return len(ids) < len(prompt_ids) and list(prompt_ids[: len(ids)]) == list(ids)


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


def _row_after(request: GenerationRequest, reply: Generation) -> _Row:
    """The last token of a reply was drawn and never computed: the next turn begins with it."""
    return _Row(request.dialogue, [*request.prompt_ids, *reply.reply_ids[:-1]])
