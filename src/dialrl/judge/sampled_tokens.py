"""A dialogue's rows to sequences for a causal model that scores what was sampled, and log-probs back by turn. Pure.

A segment is one sequence, as in training; nothing that was not sampled enters (field case 5). What the judges
reference-kl and implicit-reward have in common. Not here: models (``reference_scorer``), what is made of log-probs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt

from dialrl.errors import InputError
from dialrl.model.packing import TokenSequence
from dialrl.trajectory.rows import row_name

Row = Mapping[str, Any]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class SampledSequence:
    """One segment. ``rows``: numbers of its turns in the dialogue; ``lengths``: tokens that each of them sampled."""

    tokens: TokenSequence
    rows: tuple[int, ...]
    lengths: tuple[int, ...]

    def by_row(self, value_T: Floats) -> dict[int, Floats]:
        """Values of all sampled tokens in order, cut into those of each turn, by row number.

        Example: turns 0 and 2 of 2 and 1 tokens, values (1, 2, 3) -> {0: (1, 2), 2: (3,)}.
        """
        parts = np.split(np.asarray(value_T, dtype=np.float64), np.cumsum(self.lengths)[:-1])
        return dict(zip(self.rows, parts, strict=True))


def sampled_sequences(
    rows: Sequence[Row], *, vocabulary: int, limit_tokens: int | None = None
) -> list[SampledSequence]:
    """The segments of the dialogue ``rows``; none for a dialogue that failed in the rollout.

    Raises InputError for replies without ids, ids that the model's ``vocabulary`` does not have, and segments longer
    than its ``limit_tokens``.
    """
    if rows[0].get("status") == "error":
        return []
    spoken = [(number, row) for number, row in enumerate(rows) if row["reply"] is not None]
    segments = groupby(spoken, key=lambda entry: entry[1]["segment"] or 0)
    return [_sequence(list(segment), vocabulary, limit_tokens) for _, segment in segments]


def _sequence(turns: Sequence[tuple[int, Row]], vocabulary: int, limit_tokens: int | None) -> SampledSequence:
    pieces, places = list[Ints](), list[Ints]()
    start = 0
    for _, row in turns:
        prompt, reply = _checked(row, vocabulary)
        pieces += [prompt, reply]
        places.append(np.arange(start + len(prompt), start + len(prompt) + len(reply)))
        start += len(prompt) + len(reply)
    sampled = np.concatenate(places)
    first = turns[0][1]
    if len(sampled) and sampled[0] == 0:
        raise InputError(
            f"{row_name(first)} has a reply but no prompt_ids before it: nothing predicts its first token."
        )
    if limit_tokens is not None and start > limit_tokens:
        raise InputError(
            f"{row_name(first)} begins a segment of {start} tokens; the model takes {limit_tokens}. Roll out with a"
            " lower context_limit_tokens, or give a model with a longer context."
        )
    lengths = tuple(len(part) for part in places)
    return SampledSequence(TokenSequence(np.concatenate(pieces), sampled), tuple(n for n, _ in turns), lengths)


def _checked(row: Row, vocabulary: int) -> tuple[Ints, Ints]:
    if row["prompt_ids"] is None or row["reply_ids"] is None:
        raise InputError(
            f"{row_name(row)} has no token ids: it comes from an engine or import that gives text only. Roll out with"
            " an engine that returns ids."
        )
    prompt, reply = (np.asarray(row[name], dtype=np.int64) for name in ("prompt_ids", "reply_ids"))
    ids = np.concatenate([prompt, reply])
    if len(ids) and not 0 <= ids.min() <= ids.max() < vocabulary:
        raise InputError(
            f"{row_name(row)} holds token id {ids.max() if ids.max() >= vocabulary else ids.min()}; the model has a"
            f" vocabulary of {vocabulary}. It must be a policy with the same tokenizer."
        )
    return prompt, reply
