"""Gold answers as tokens: the wrapper that leads up to the answer, then the answer's own tokens.

The whole text is tokenised once and cut by character offsets, so that the answer has the tokens it would have in a
reply. Not here: which answers there are, the forward.
"""

from dataclasses import dataclass
from typing import Any, Literal

from dialrl.errors import InputError, UsageError


@dataclass(frozen=True)
class GoldAlias:
    """One accepted answer: ``wrapper_ids`` are context, ``gold_ids`` (never empty) are scored."""

    text: str
    wrapper_ids: tuple[int, ...]
    gold_ids: tuple[int, ...]


@dataclass(frozen=True)
class GoldLimits:
    """``tokens``: longest answer. ``overlong``: what to do with a longer one; truncated, its first tokens count."""

    tokens: int = 64
    overlong: Literal["refuse", "truncate"] = "refuse"


def encode_gold(tokenizer: Any, alias: str, *, before: str, after: str, limits: GoldLimits) -> GoldAlias:
    """Tokens of ``before + alias + after``, cut at the alias.

    A token that overlaps the alias by one character belongs to it. Raises InputError for an alias longer than the limit
    (unless truncated) or without tokens, UsageError for a tokenizer that gives no character offsets.
    """
    if not getattr(tokenizer, "is_fast", False):
        raise UsageError(
            "The policy's tokenizer gives no character offsets, which the answer's tokens are found by. Save it as a"
            " fast tokenizer (tokenizer.json)."
        )
    encoded = tokenizer(before + alias + after, add_special_tokens=False, return_offsets_mapping=True)
    start, end = len(before), len(before) + len(alias)
    places = [place for place, (low, high) in enumerate(encoded["offset_mapping"]) if low < end and start < high > low]
    if not places:
        raise InputError(f"The answer '{alias}' has no tokens of its own. Leave it out of the accepted answers.")
    ids = [int(token) for token in encoded["input_ids"]]
    gold = ids[places[0] : places[-1] + 1]
    if len(gold) > limits.tokens and limits.overlong == "refuse":
        raise InputError(
            f"The answer '{alias:.80}' has {len(gold)} tokens; the limit is {limits.tokens}. Score its first tokens"
            " with overlong: truncate, raise max_gold_tokens, or leave the question out."
        )
    return GoldAlias(alias, tuple(ids[: places[0]]), tuple(gold[: limits.tokens]))
