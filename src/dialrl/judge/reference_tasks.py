"""A dialogue's rows to sequences for the reference policy, and its log-probs back to ``kl`` of each turn. Pure.

kl of a turn = sum over its sampled tokens of log pi - log pi_ref (docs/credit.md 1). pi is the distribution that the
tokens were drawn from, so its log-probs are those the sampler stored; nothing that was not sampled enters (field case
5). A segment is one sequence, as in training. Not here: the model (``reference_scorer``), files (``reference_kl``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt

from dialrl.errors import InputError, NumericalError
from dialrl.model.packing import TokenSequence
from dialrl.trajectory.rows import row_name

Row = Mapping[str, Any]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ReferenceSequence:
    """One segment. ``rows``: numbers of its turns in the dialogue; ``sampled``: their log-probs (tokens,) each."""

    tokens: TokenSequence
    rows: tuple[int, ...]
    sampled: tuple[Floats, ...]

    def kl(self, reference_T: Floats) -> dict[int, float]:
        """kl by row number, from the reference's log-probs of all sampled tokens in order.

        Example: two turns of one token each, sampled with log-probs -1 and -2, reference -1.1 and -2.1: .1 and .1.
        """
        ends = np.cumsum([len(logprobs) for logprobs in self.sampled])
        parts = np.split(np.asarray(reference_T, dtype=np.float64), ends[:-1])
        found = zip(self.rows, self.sampled, parts, strict=True)
        return {row: float(np.sum(sampled - reference)) for row, sampled, reference in found}


def dialogue_sequences(
    rows: Sequence[Row], *, vocabulary: int, limit_tokens: int | None = None
) -> list[ReferenceSequence]:
    """The segments of the dialogue ``rows``; none for a dialogue that failed in the rollout.

    Raises InputError for replies without ids or log-probs, ids that the reference's ``vocabulary`` does not have, and
    segments longer than its ``limit_tokens``; NumericalError for a log-prob that is not finite.
    """
    if rows[0].get("status") == "error":
        return []
    spoken = [(number, row) for number, row in enumerate(rows) if row["reply"] is not None]
    segments = groupby(spoken, key=lambda entry: entry[1]["segment"] or 0)
    return [_sequence(list(segment), vocabulary, limit_tokens) for _, segment in segments]


def _sequence(turns: Sequence[tuple[int, Row]], vocabulary: int, limit_tokens: int | None) -> ReferenceSequence:
    pieces, places, sampled = list[Ints](), list[Ints](), list[Floats]()
    start = 0
    for _, row in turns:
        prompt, reply, logprobs = _checked(row, vocabulary)
        pieces += [prompt, reply]
        places.append(np.arange(start + len(prompt), start + len(prompt) + len(reply)))
        sampled.append(logprobs)
        start += len(prompt) + len(reply)
    trained = np.concatenate(places)
    first = turns[0][1]
    if len(trained) and trained[0] == 0:
        raise InputError(
            f"{row_name(first)} has a reply but no prompt_ids before it: nothing predicts its first token."
        )
    if limit_tokens is not None and start > limit_tokens:
        raise InputError(
            f"{row_name(first)} begins a segment of {start} tokens; the reference takes {limit_tokens}. Roll out with a"
            " lower context_limit_tokens, or give a reference with a longer context."
        )
    tokens = TokenSequence(np.concatenate(pieces), trained)
    return ReferenceSequence(tokens, tuple(number for number, _ in turns), tuple(sampled))


def _checked(row: Row, vocabulary: int) -> tuple[Ints, Ints, Floats]:
    if row["prompt_ids"] is None or row["reply_ids"] is None or row["reply_logprobs"] is None:
        raise InputError(
            f"{row_name(row)} has no token ids with log-probs: it comes from an engine or import that gives text only."
            " Roll out with an engine that returns ids and log-probs."
        )
    prompt, reply = (np.asarray(row[name], dtype=np.int64) for name in ("prompt_ids", "reply_ids"))
    logprobs = np.asarray(row["reply_logprobs"], dtype=np.float64)
    if len(reply) != len(logprobs):
        raise InputError(
            f"{row_name(row)} has {len(reply)} reply_ids but {len(logprobs)} reply_logprobs; expected equally many."
        )
    if not np.isfinite(logprobs).all():
        token = int(np.flatnonzero(~np.isfinite(logprobs))[0])
        raise NumericalError(f"{row_name(row)}, token {token} was sampled with log-prob {logprobs[token]}.")
    ids = np.concatenate([prompt, reply])
    if len(ids) and not 0 <= ids.min() <= ids.max() < vocabulary:
        raise InputError(
            f"{row_name(row)} holds token id {ids.max() if ids.max() >= vocabulary else ids.min()}; the reference has a"
            f" vocabulary of {vocabulary}. It must be a policy with the same tokenizer."
        )
    return prompt, reply, logprobs
