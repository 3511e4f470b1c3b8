"""Which tokens end a reply: collected from every place where a model says so, and from the chat template.

``eos_token_id`` may be missing, an int or a list (field case 2). Not here: what happens after a stop
(``dialrl.model.context``).
"""

from collections.abc import Iterable
from typing import Any

from dialrl.errors import InputError
from dialrl.model.template import ChatTemplate

_LONGEST_RUN = 4  # of line breaks in one token


def stop_ids(template: ChatTemplate, model: Any = None) -> list[int]:
    """Sorted ids at which sampling stops: those of the generation configuration, the configuration, the tokenizer, and
    the token with which the template ends a reply; in a transcript without control tokens, every line break.

    ``model``: anything with ``generation_config`` and ``config``; None for the tokenizer and template alone. Raises
    InputError when there is no stop token at all.
    """
    places = (getattr(model, "generation_config", None), getattr(model, "config", None), template.tokenizer)
    found = {token for place in places for token in as_ids(getattr(place, "eos_token_id", None))}
    end_of_turn = end_of_turn_id(template)
    if end_of_turn is not None:
        found |= {end_of_turn} | line_breaks(template)
    if not found:
        raise InputError(
            "The policy names no end-of-turn token: neither generation_config.json, config.json nor the tokenizer has"
            " an eos_token_id, and its chat template ends a reply with no special token. Set eos_token_id."
        )
    return sorted(found)


def as_ids(value: Any) -> list[int]:
    """``None`` -> ``[]``, ``9`` -> ``[9]``, ``[9, 7]`` -> ``[9, 7]``."""
    if value is None:
        return []
    return [int(token) for token in value] if isinstance(value, Iterable) else [int(value)]


def end_of_turn_id(template: ChatTemplate) -> int | None:
    """The token with which the template ends a reply: a special one, or the line break of a transcript that has none.

    None if it writes other text there.
    """
    closing = template.closing_ids
    special = special_ids(template.tokenizer)
    if not closing or closing[0] in special:
        return closing[0] if closing else None
    is_transcript = not special.intersection(closing) and template.decode(closing[:1]).startswith("\n")
    return closing[0] if is_transcript else None


def line_breaks(template: ChatTemplate) -> set[int]:
    """Tokens of line breaks alone, which end a reply where the template ends it by a line break."""
    end = end_of_turn_id(template)
    if end is None or end in special_ids(template.tokenizer):
        return set()
    runs = [template.encode("\n" * length) for length in range(1, _LONGEST_RUN + 1)]
    return {end, *(run[0] for run in runs if len(run) == 1)}


def special_ids(tokenizer: Any) -> frozenset[int]:
    """Ids of all special tokens of a tokenizer."""
    added = getattr(tokenizer, "added_tokens_decoder", {})
    marked = {token for token, about in added.items() if about.special}
    named = as_ids(getattr(tokenizer, "eos_token_id", None))
    return frozenset(marked | set(getattr(tokenizer, "all_special_ids", ())) | set(named))
