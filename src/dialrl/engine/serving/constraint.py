"""Holds answers to a JSON schema while they are drawn: tokens that cannot continue a valid answer get probability 0.

By the library llguidance (extra ``serve``); without it answers are free text and read for what they are. Not here: what
the schema is.
"""

import json
import threading
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch

from dialrl.errors import RunError, UsageError

_COMPACT = {"x-guidance": {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}}


class ClosedError(RunError):
    """The server ends; what it was answering is not answered."""


def can_constrain() -> bool:
    """Whether the library is installed."""
    return find_spec("llguidance") is not None


class Grammars:
    """Schemas for one tokenizer, whose vocabulary is read once. ``ends``: tokens that may end an answer."""

    def __init__(self, tokenizer: Any, vocabulary: int, ends: Sequence[int]) -> None:
        import llguidance.hf

        self._tokenizer = llguidance.hf.from_tokenizer(tokenizer, n_vocab=vocabulary, eos_token=list(ends))
        self.vocabulary = vocabulary

    def matcher(self, schema: Mapping[str, Any]) -> Any:
        """What follows one answer token by token. Raises UsageError for a schema that the library does not take."""
        from llguidance import LLMatcher

        grammar = LLMatcher.grammar_from_json_schema(json.dumps({**_COMPACT, **schema}))
        matcher = LLMatcher(self._tokenizer, grammar)
        if matcher.is_error():
            raise UsageError(f"This JSON schema cannot be held to: {matcher.get_error()}")
        return matcher


class Constraints:
    """The matchers of a batch; ``matchers_R``: one a row as given, None for free text."""

    def __init__(self, matchers_R: Sequence[Any], vocabulary: int) -> None:
        from llguidance import numpy as masks

        self._matchers = list(matchers_R)
        self._vocabulary = vocabulary
        self._masks = masks
        self._bits = masks.allocate_token_bitmask(1, vocabulary)

    def restrict(self, given_R: np.ndarray, ended_R: np.ndarray, logits_RV: torch.Tensor) -> torch.Tensor:
        """Logits with -inf at what may not follow; rows that have ended are left alone."""
        logits_RV = logits_RV.clone()
        for row, (given, ended) in enumerate(zip(given_R, ended_R, strict=True)):
            matcher = self._matchers[given]
            if matcher is None or ended:
                continue
            self._masks.fill_next_token_bitmask(matcher, self._bits)
            allowed_V = np.unpackbits(self._bits[0].view(np.uint8), bitorder="little")[: self._vocabulary]
            forbidden_V = torch.from_numpy(allowed_V == 0).to(logits_RV.device)
            logits_RV[row, : self._vocabulary].masked_fill_(forbidden_V, float("-inf"))
            logits_RV[row, self._vocabulary :] = float("-inf")
        return logits_RV

    def accept(self, given_R: np.ndarray, ended_R: np.ndarray, tokens_R: np.ndarray) -> None:
        """Take the tokens that were drawn."""
        for given, ended, token in zip(given_R, ended_R, tokens_R, strict=True):
            if self._matchers[given] is not None and not ended:
                self._matchers[given].consume_token(int(token))


class Interruptible:
    """Looks before every token whether the server is to end, and then ends the batch by ClosedError.

    A thread that is inside torch while the interpreter goes away would take the whole process down.
    """

    def __init__(self, inner: Constraints | None, stop: threading.Event) -> None:
        self._inner, self._stop = inner, stop

    def restrict(self, given_R: np.ndarray, ended_R: np.ndarray, logits_RV: torch.Tensor) -> torch.Tensor:
        """The inner one's logits, or these. Raises ClosedError."""
        if self._stop.is_set():
            raise ClosedError("the server was closed while it answered")
        return logits_RV if self._inner is None else self._inner.restrict(given_R, ended_R, logits_RV)

    def accept(self, given_R: np.ndarray, ended_R: np.ndarray, tokens_R: np.ndarray) -> None:
        """Hand the tokens on."""
        if self._inner is not None:
            self._inner.accept(given_R, ended_R, tokens_R)
