"""The tokenizer of the shipped demo policy: a byte-level vocabulary with every word of the demo world as one token.

A text of the demo world costs one token a word; any other text falls back to bytes, so encoding and decoding round-trip
whatever is said. The chat template marks roles and ends every message with ``<|end|>``, so a rendering only ever grows.
Needs the extra ``train``.
"""

import itertools
import re
from typing import Any

from dialrl.environment.demo.lines import LINES, OPENING_TAILS, OPENINGS
from dialrl.environment.demo.replies import REPLIES
from dialrl.environment.demo.words import SLOT_WORDS

END_OF_TURN = "<|end|>"
PADDING = "<|pad|>"
ROLE_TOKENS = ("<|system|>", "<|user|>", "<|assistant|>")
CONTEXT_TOKENS = 2048

CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{{- '<|' + message['role'] + '|>' + message['content'] + '<|end|>' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%}"
)

_PIECE = re.compile(r" ?[A-Za-z]+| ?[^\sA-Za-z]+")


def vocabulary() -> list[str]:
    """Every word of the demo world as the byte-level pre-tokenizer cuts it (a leading space is part of it), sorted."""
    heads = [head for heads in OPENINGS for head in heads]
    tails = [f" {tail}" for tails in OPENING_TAILS for tail in tails]
    lines = [line for lines in LINES.values() for line in lines]
    replies = [text for texts in REPLIES.values() for text in texts]
    slots = {f" {word}" for words in SLOT_WORDS.values() for word in words}
    pieces = {piece for text in itertools.chain(heads, tails, lines, replies) for piece in _pieces(text)}
    return sorted(pieces | slots)


def _pieces(text: str) -> list[str]:
    """The words of a template; a slot's own name is no word."""
    return _PIECE.findall(re.sub(r" ?\{\w+\}", "\n", text))


def build_tokenizer() -> Any:
    """A ``PreTrainedTokenizerFast`` with the chat template set."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    special = [PADDING, END_OF_TURN, *ROLE_TOKENS]
    words = [piece.replace(" ", "Ġ") for piece in vocabulary()]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = list(dict.fromkeys([*special, *alphabet, *words]))
    model = models.BPE(vocab={token: place for place, token in enumerate(tokens)}, merges=[], ignore_merges=True)
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(special)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END_OF_TURN,
        pad_token=PADDING,
        chat_template=CHAT_TEMPLATE,
        model_max_length=CONTEXT_TOKENS,
        clean_up_tokenization_spaces=False,
    )
