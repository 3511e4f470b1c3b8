"""A model that answers requests in batches: loaded once, prefixes of earlier prompts reused, answers held to schemas.

Rows of a cache keep what they held; a new request starts from the row with the longest common prefix, so a judge's
rubric or a growing dialogue is computed once. Which requests meet in a batch is a matter of timing, so bits may differ
from run to run; each answer has its own seed. Not here: who asks (``batching``), the wire (``server``).
"""

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dialrl.engine.base import Generation, SamplingSettings
from dialrl.engine.decoding import BlockDecoder, Drawn
from dialrl.engine.row_cache import RowCache
from dialrl.engine.sampling import check_settings, uniforms
from dialrl.engine.serving.asked import Asked, BadRequestError
from dialrl.engine.serving.constraint import Constraints, Grammars, Interruptible, can_constrain
from dialrl.errors import UsageError
from dialrl.model.loading import LoadingSettings, load_policy, model_directory
from dialrl.model.stopping import as_ids, stop_ids
from dialrl.model.template import ChatTemplate

_WORTH_COPYING = 16  # tokens of a common prefix
_WORTH_WAITING = 64
_KEPT_CACHES = 3  # one for each kind of prompt, the latest used


class ServedModel:
    """``template_options``: of requests that bring none. ``context_limit``: most tokens of prompt and answer.

    When ``stop`` is set, what is being answered ends by ClosedError.
    """

    def __init__(self, model: Any, tokenizer: Any, template_options: Mapping[str, Any] | None = None) -> None:
        self._model, self.tokenizer = model.eval(), tokenizer
        self.template_options = dict(template_options or {})
        self._vocabulary = model.get_input_embeddings().weight.shape[0]
        self.context_limit = getattr(model.config.get_text_config(), "max_position_embeddings", None)
        self._templates: dict[str, ChatTemplate] = {}
        self._ends = sorted({*as_ids(tokenizer.eos_token_id), *as_ids(model.generation_config.eos_token_id)})
        self._grammars: Grammars | None = None
        self.stop = threading.Event()
        self._rows: dict[tuple[int, ...], _Rows] = {}

    @classmethod
    def open(
        cls, directory: str | Path, settings: LoadingSettings, template_options: Mapping[str, Any] | None = None
    ) -> "ServedModel":
        """The model in a directory. Raises what loading raises."""
        model, tokenizer = load_policy(model_directory(directory), settings)
        return cls(model, tokenizer, template_options)

    def template(self, options: Mapping[str, Any]) -> ChatTemplate:
        """The chat template with these options. Raises BadRequestError for options that cannot be used."""
        key = json.dumps(options, sort_keys=True, default=str)
        if key not in self._templates:
            try:
                self._templates[key] = ChatTemplate(self.tokenizer, options)
            except UsageError as error:
                raise BadRequestError(str(error)) from error
        return self._templates[key]

    def answer(self, batch: Sequence[Asked]) -> list[Generation]:
        """One answer a request, in order. All are drawn by the settings of the first, but for their lengths."""
        sampling = batch[0].sampling
        check_settings(sampling)
        limits = [self._limit(asked) for asked in batch]
        # Taken out, and put back when all went well: after a failure nobody knows what the rows hold.
        rows = self._rows.pop(batch[0].beginning, None) or _Rows()
        waves = prompt_waves(rows.held, [asked.prompt_ids for asked in batch])
        order = [index for wave in waves for index in wave]
        with torch.inference_mode():
            drawn = self._drawn(
                rows,
                [[batch[index] for index in wave] for wave in waves],
                np.asarray([limits[index] for index in order]),
                sampling,
            )
        self._keep(batch[0].beginning, rows)
        replies = {index: _generation(batch[index], drawn, row) for row, index in enumerate(order)}
        return [replies[index] for index in range(len(batch))]

    def _limit(self, asked: Asked) -> int:
        room = (self.context_limit or 2**31) - len(asked.prompt_ids)
        if not asked.prompt_ids or room < 1 or max(asked.prompt_ids) >= self._vocabulary or min(asked.prompt_ids) < 0:
            raise BadRequestError(
                f"the prompt has {len(asked.prompt_ids)} tokens; expected 1 to {(self.context_limit or 2**31) - 1}, all"
                f" from 0 to {self._vocabulary - 1}"
            )
        return min(asked.sampling.max_reply_tokens, room)

    def _drawn(
        self, rows: "_Rows", waves: Sequence[Sequence[Asked]], limits_R: np.ndarray, sampling: SamplingSettings
    ) -> Drawn:
        """Rows of the cache are those of ``waves``, one after the other."""
        batch = [asked for wave in waves for asked in wave]
        decoder = BlockDecoder(self._model, rows.cache, self._stops(batch))
        rows.cache.reserve(len(batch), 0)
        drawn = decoder.decode(
            self._prefill(rows, decoder, [[asked.prompt_ids for asked in wave] for wave in waves]),
            np.asarray([len(asked.prompt_ids) for asked in batch]),
            uniforms([asked.seed for asked in batch], int(limits_R.max())),
            limits_R,
            sampling,
            Interruptible(self._constraints(batch), self.stop),
        )
        for place, given in enumerate(drawn.order):
            said = drawn.tokens_RT[given, : max(0, int(drawn.lengths_R[given]) - 1)].tolist()
            rows.held[place] = [*batch[given].prompt_ids, *said]
        return drawn

    def _prefill(self, rows: "_Rows", decoder: BlockDecoder, waves: Sequence[Sequence[list[int]]]) -> torch.Tensor:
        """Logits after each prompt. What a prompt shares with one of an earlier wave is copied, not computed."""
        first, logits = 0, []
        for prompts in waves:
            starts, moves = shared_prefixes(rows.held, prompts, first_row=first)
            rows.cache.move(moves)
            new_ids = [prompt[start:] for prompt, start in zip(prompts, starts, strict=True)]
            logits.append(decoder.prefill(new_ids, starts, first_row=first))
            rows.held[first : first + len(prompts)] = [list(prompt) for prompt in prompts]
            first += len(prompts)
        return torch.cat(logits)

    def _keep(self, beginning: tuple[int, ...], rows: "_Rows") -> None:
        """Keep the rows of prompts that begin so: a judge's stay when an actor's are computed in between."""
        self._rows[beginning] = rows
        while len(self._rows) > _KEPT_CACHES:
            del self._rows[next(iter(self._rows))]

    def _stops(self, batch: Sequence[Asked]) -> list[int]:
        """Tokens that end an answer; one held to a schema ends where the grammar does, at an end of the model's own."""
        found = set(self._ends)
        for asked in batch:
            if asked.template is not None and (asked.schema is None or not can_constrain()):
                found |= set(stop_ids(asked.template, self._model))
        return sorted(found)

    def _constraints(self, batch: Sequence[Asked]) -> Constraints | None:
        if all(asked.schema is None for asked in batch) or not can_constrain():
            return None
        if self._grammars is None:
            self._grammars = Grammars(self.tokenizer, self._vocabulary, self._ends)
        try:
            matchers = [None if asked.schema is None else self._grammars.matcher(asked.schema) for asked in batch]
        except UsageError as error:
            raise BadRequestError(str(error)) from error
        return Constraints(matchers, self._vocabulary)


@dataclass
class _Rows:
    """A cache, and the ids that each of its rows holds."""

    cache: RowCache = field(default_factory=RowCache)
    held: list[list[int]] = field(default_factory=list)


def prompt_waves(
    held: Sequence[Sequence[int]], prompts: Sequence[Sequence[int]], worth_waiting: int = _WORTH_WAITING
) -> list[list[int]]:
    """Prompts by the wave they are computed in: after the one whose beginning they share, where that spares enough.

    With ``worth_waiting`` 2 and nothing held, of the prompts 1,2,3,4 and 1,2,3,5 and 9,9 the second waits for the
    first: waves (0, 2) and (1).
    """
    depths: list[int] = []
    for place, prompt in enumerate(prompts):
        known = max((common_length(row, prompt[:-1]) for row in held), default=0)
        lengths = [common_length(earlier, prompt[:-1]) for earlier in prompts[:place]]
        longest = max(lengths, default=0)
        if longest - known < worth_waiting:
            depths.append(0)
            continue
        near = [depth for length, depth in zip(lengths, depths, strict=True) if longest - length < worth_waiting]
        depths.append(1 + min(near))
    return [[place for place, own in enumerate(depths) if own == depth] for depth in range(max(depths) + 1)]


def shared_prefixes(
    held: Sequence[Sequence[int]],
    prompts: Sequence[Sequence[int]],
    worth_copying: int = _WORTH_COPYING,
    *,
    first_row: int = 0,
) -> tuple[list[int], list[tuple[int, int]]]:
    """How many ids of each prompt some row holds already, and the (target, source) copies that bring them there.

    At least one id of a prompt is always left to compute. With ``worth_copying`` 2, rows that hold 1,2,3 and 7,8 serve
    the prompts 7,8,9 and 1,2,4 with starts 2, 2 and the copies (0, 1), (1, 0).
    """
    starts, moves = [], []
    for place, prompt in enumerate(prompts, start=first_row):
        lengths = [common_length(row, prompt[:-1]) for row in held]
        best = max(range(len(held)), key=lambda row: (lengths[row], row == place), default=None)
        if best is None or lengths[best] < worth_copying:
            starts.append(0)
            continue
        starts.append(lengths[best])
        if best != place:
            moves.append((place, best))
    return starts, moves


def common_length(first: Sequence[int], second: Sequence[int]) -> int:
    """How many ids two sequences begin with in common."""
    shorter = min(len(first), len(second))
    one, other = np.asarray(first[:shorter]), np.asarray(second[:shorter])
    differing = np.flatnonzero(one != other)
    return int(differing[0]) if len(differing) else shorter


def _generation(asked: Asked, drawn: Drawn, row: int) -> Generation:
    length = int(drawn.lengths_R[row])
    finish = "stop" if drawn.stopped_R[row] else "length"
    logprobs = drawn.logprobs_RT[row, :length].tolist()
    return Generation(drawn.tokens_RT[row, :length].tolist(), logprobs, finish, len(asked.prompt_ids), 0)  # type: ignore[arg-type]
