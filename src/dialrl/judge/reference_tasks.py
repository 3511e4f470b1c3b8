"""A dialogue's rows to sequences for the reference policy, and its log-probs back to ``kl`` of each turn. Pure.

kl of a turn = sum over its sampled tokens of log pi - log pi_ref (docs/credit.md 1). pi is the distribution that the
tokens were drawn from, so its log-probs are those the sampler stored. Not here: the model (``reference_scorer``), files
(``reference_kl``).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dialrl.errors import InputError, NumericalError
from dialrl.judge.sampled_tokens import Floats, Row, SampledSequence, sampled_sequences
from dialrl.model.packing import TokenSequence
from dialrl.trajectory.rows import row_name


@dataclass(frozen=True)
class ReferenceSequence:
    """One segment. ``sampled``: the sampler's log-probs of its turns, (tokens,) each."""

    segment: SampledSequence
    sampled: tuple[Floats, ...]

    @property
    def tokens(self) -> TokenSequence:
        return self.segment.tokens

    @property
    def rows(self) -> tuple[int, ...]:
        """Numbers of its turns in the dialogue."""
        return self.segment.rows

    def kl(self, reference_T: Floats) -> dict[int, float]:
        """kl by row number, from the reference's log-probs of all sampled tokens in order.

        Example: two turns of one token each, sampled with log-probs -1 and -2, reference -1.1 and -2.1: .1 and .1.
        """
        found = zip(self.segment.by_row(reference_T).items(), self.sampled, strict=True)
        return {row: float(np.sum(sampled - reference)) for (row, reference), sampled in found}


def dialogue_sequences(
    rows: Sequence[Row], *, vocabulary: int, limit_tokens: int | None = None
) -> list[ReferenceSequence]:
    """The segments of the dialogue ``rows``; none for a dialogue that failed in the rollout.

    Raises what ``sampled_sequences`` raises, InputError for replies without a log-prob for each id, and NumericalError
    for a log-prob that is not finite.
    """
    segments = sampled_sequences(rows, vocabulary=vocabulary, limit_tokens=limit_tokens)
    return [
        ReferenceSequence(segment, tuple(_logprobs(rows[number]) for number in segment.rows)) for segment in segments
    ]


def _logprobs(row: Row) -> Floats:
    if row["reply_logprobs"] is None:
        raise InputError(
            f"{row_name(row)} has token ids but no log-probs: the engine or import it comes from gives text only, or"
            " ids alone. Roll out with an engine that returns ids and log-probs."
        )
    logprobs = np.asarray(row["reply_logprobs"], dtype=np.float64)
    if len(row["reply_ids"]) != len(logprobs):
        raise InputError(
            f"{row_name(row)} has {len(row['reply_ids'])} reply_ids but {len(logprobs)} reply_logprobs; expected"
            " equally many."
        )
    if not np.isfinite(logprobs).all():
        token = int(np.flatnonzero(~np.isfinite(logprobs))[0])
        raise NumericalError(f"{row_name(row)}, token {token} was sampled with log-prob {logprobs[token]}.")
    return logprobs
