"""Turns to training sequences: one sequence a (dialogue, segment), all its turns in it, sampled tokens trained.

A turn is trained when its advantage is known (docs/credit.md 3); every other token is context. Sequences end at their
last trained token. Not here: reading files (``data``), model inputs (``dialrl.model.packing``).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

import numpy as np

from dialrl.errors import InputError
from dialrl.model.packing import TokenSequence
from dialrl.update.turns import Floats, Ints, Turn


@dataclass(frozen=True)
class Limits:
    """``tokens``: longest sequence the model takes. ``overlong``: what to do with a longer segment."""

    tokens: int
    overlong: Literal["refuse", "split"] = "refuse"


@dataclass(frozen=True)
class DialogueSequence:
    """A sequence, and the turns whose sampled tokens are trained in it, in order."""

    tokens: TokenSequence
    turns: tuple[Turn, ...]


def build_sequences(
    turns: Sequence[Turn], is_trained: Callable[[Turn], bool], limits: Limits
) -> Iterator[DialogueSequence]:
    """Training sequences of one dialogue, in order of its segments; segments without a trained turn give none.

    Example: prompt 2 ids, reply 3, prompt 2, reply 2, both trained: 9 ids, trained places 2, 3, 4, 7, 8. The last id
    is predicted and never read, so the model reads 8.
    """
    for _, segment in groupby(turns, key=lambda turn: turn.segment):
        for part in _parts(_until_last_trained(list(segment), is_trained), is_trained, limits):
            yield _concatenate(part, is_trained)


def _until_last_trained(segment: list[Turn], is_trained: Callable[[Turn], bool]) -> list[Turn]:
    last = max((index for index, turn in enumerate(segment) if is_trained(turn)), default=-1)
    return segment[: last + 1]


def _parts(segment: list[Turn], is_trained: Callable[[Turn], bool], limits: Limits) -> Iterable[list[Turn]]:
    """The segment whole, or cut before the turn that would make a part longer than the limit (field case 22)."""
    if not segment:
        return []
    lengths = [_length(turn) for turn in segment]
    if sum(lengths) <= limits.tokens:
        return [segment]
    if limits.overlong == "refuse":
        raise InputError(
            f"Dialogue '{segment[0].dialogue}', segment {segment[0].segment} has {sum(lengths)} tokens; the limit is"
            f" {limits.tokens}. Use --overlong split to cut it between turns, or roll out with a lower context limit."
        )
    parts: list[list[Turn]] = [[]]
    used = 0
    for turn, length in zip(segment, lengths, strict=True):
        if length > limits.tokens:
            raise InputError(
                f"{turn.where} alone has {length} tokens; the limit is {limits.tokens}. It cannot be split."
            )
        if parts[-1] and used + length > limits.tokens:
            parts.append([])
            used = 0
        parts[-1].append(turn)
        used += length
    trained = (_until_last_trained(part, is_trained) for part in parts)
    return [part for part in trained if part]


def _length(turn: Turn) -> int:
    if turn.prompt_ids is None or turn.reply_ids is None:
        raise InputError(
            f"{turn.where} has no token ids, but later turns of its segment are to be trained and need them as context."
        )
    return len(turn.prompt_ids) + len(turn.reply_ids)


def _concatenate(part: list[Turn], is_trained: Callable[[Turn], bool]) -> DialogueSequence:
    pieces: list[Ints] = []
    places: list[Ints] = []
    start = 0
    for turn in part:
        prompt, reply = _ids_of(turn)
        pieces += [prompt, reply]
        if is_trained(turn):
            places.append(np.arange(start + len(prompt), start + len(prompt) + len(reply)))
        start += len(prompt) + len(reply)
    trained = np.concatenate(places)
    if trained[0] == 0:
        raise InputError(f"{part[0].where} has a reply but no prompt_ids before it: nothing predicts its first token.")
    return DialogueSequence(TokenSequence(np.concatenate(pieces), trained), tuple(t for t in part if is_trained(t)))


def _ids_of(turn: Turn) -> tuple[Ints, Ints]:
    if turn.prompt_ids is None or turn.reply_ids is None:
        raise InputError(f"{turn.where} has no token ids.")
    return turn.prompt_ids, turn.reply_ids


def flat_logprobs(sequences: Iterable[DialogueSequence]) -> Floats | None:
    """The sampler's log-probs of all trained tokens in order; None when any is missing."""
    parts: list[Floats] = []
    for sequence in sequences:
        for turn in sequence.turns:
            if turn.logprobs is None:
                return None
            parts.append(turn.logprobs)
    return np.concatenate(parts) if parts else np.zeros(0)
