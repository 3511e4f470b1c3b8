"""The model's own chat template, as token ids: whole renderings, and the suffix of one that follows a reply.

A message is never rendered or encoded alone: its ids are cut out of a rendering of the whole conversation, so that
separators, headers and merges are those the model was trained on (field case 2). Not here: the dialogue's bookkeeping
(``dialrl.model.context``), and choosing how history is kept (``dialrl.model.probe``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Protocol

from jinja2.exceptions import TemplateError

from dialrl.errors import UsageError
from dialrl.model.chat_templates import checked_options, template_digest
from dialrl.model.reply import DecodedReply, decode_reply
from dialrl.scenario.message import Message

_SENTINELS = ("placeholder", "reply-placeholder-one", "reply-placeholder-two", "reply-placeholder-7291")


class ChatTokenizer(Protocol):
    """The part of a transformers tokenizer that templates need."""

    def apply_chat_template(self, conversation: Any, **options: Any) -> Any:
        """The conversation as text (called with ``tokenize=False``)."""

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Ids of a text that already holds its special tokens."""

    def decode(self, token_ids: Any, *, skip_special_tokens: bool) -> str:
        """Text of ids."""


@dataclass(frozen=True)
class Cut:
    """Ids of a text, cut at character positions. ``exact``: joined, the pieces are the ids of the whole text."""

    pieces: list[list[int]]
    exact: bool


class ChatTemplate:
    """Renders whole conversations by the tokenizer's chat template.

    ``options`` go to every rendering: the template's own variables, for example ``{"enable_thinking": False}``, and
    ``chat_template``, another template than the tokenizer's (``dialrl.model.chat_templates``). Raises UsageError when
    there is no template at all, MissingInputError for a template file that does not exist.
    """

    def __init__(self, tokenizer: ChatTokenizer, options: Mapping[str, Any] | None = None) -> None:
        self.tokenizer = tokenizer
        self.options = checked_options(options or {})
        if "chat_template" not in self.options and getattr(tokenizer, "chat_template", "own") is None:
            raise UsageError(
                "The policy's tokenizer has no chat template, which a dialogue needs (base models have none). Name one:"
                " --set template_options.chat_template=plain (shipped: plain, chatml), or a .jinja file, or save one"
                " beside the model as chat_template.jinja."
            )
        self._decode_options = {"skip_special_tokens": False}
        if hasattr(tokenizer, "clean_up_tokenization_spaces"):  # transformers would drop spaces before punctuation
            self._decode_options["clean_up_tokenization_spaces"] = False
        self._special_texts = _special_texts(tokenizer)

    @property
    def digest(self) -> str | None:
        """Content hash of the template that renders, for the lineage; None where there is no text of it."""
        return template_digest(self.options.get("chat_template", getattr(self.tokenizer, "chat_template", None)))

    def render(self, messages: Sequence[Message], *, generation_prompt: bool) -> str:
        """The text of a whole conversation, with the header of the next reply if ``generation_prompt``."""
        try:
            text = self.tokenizer.apply_chat_template(
                [_to_template(message) for message in messages],
                tokenize=False,
                add_generation_prompt=generation_prompt,
                **self.options,
            )
        except TemplateError as error:
            roles = [message.role for message in messages]
            raise UsageError(
                f"The policy's chat template refuses a conversation with the roles {roles}: {error}. Use an environment"
                " whose messages fit the template, or another chat template."
            ) from error
        return str(text)

    def encode(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False))

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids, special tokens included, nothing stripped."""
        tokenizer: Any = self.tokenizer
        return str(tokenizer.decode(list(ids), **self._decode_options))

    def decode_reply(self, reply_ids: Sequence[int], finish_reason: str) -> DecodedReply:
        """The text of a sampled reply, without the stop token that ended it; see ``DecodedReply``."""
        return decode_reply(self.decode, reply_ids, finish_reason, thinking_opened=self.opens_thinking)

    def prompt_ids(self, messages: Sequence[Message]) -> list[int]:
        """Ids of a whole conversation up to and with the header of the next reply."""
        return self.encode(self.render(messages, generation_prompt=True))

    def suffix_text(self, messages: Sequence[Message], reply_index: int, *, generation_prompt: bool) -> str:
        """What a whole rendering holds after the content of the assistant message ``messages[reply_index]``.

        Found by putting a placeholder in that message's place, so that it does not depend on what the template does to
        the reply itself (stripping, cutting thoughts).
        """
        for sentinel in _SENTINELS:
            replaced = [*messages]
            replaced[reply_index] = Message("assistant", sentinel)
            before, found, after = self.render(replaced, generation_prompt=generation_prompt).rpartition(sentinel)
            if found and sentinel not in before and sentinel not in after:
                return after
        raise UsageError(
            "The policy's chat template shows no assistant message, or shows it more than once: the place where a reply"
            " ends cannot be found. Give a template that writes each message once, with the option 'chat_template'."
        )

    def suffix_ids(self, messages: Sequence[Message], reply_index: int, *, generation_prompt: bool) -> list[int]:
        """Ids of ``suffix_text`` as they stand at the end of the whole rendering: end of turn, separator, messages."""
        suffix = self.suffix_text(messages, reply_index, generation_prompt=generation_prompt)
        if suffix.startswith(self._special_texts):
            return self.encode(suffix)  # no tokenizer merges across a special token: these are the whole's last ids
        whole = self.render(messages, generation_prompt=generation_prompt)
        if not whole.endswith(suffix):
            return self.encode(suffix)
        return self.cut(whole, [len(whole) - len(suffix)]).pieces[-1]

    def cut(self, text: str, boundaries: Sequence[int]) -> Cut:
        """Ids of the whole ``text`` in ``len(boundaries) + 1`` pieces, cut at character positions.

        Where a token straddles a boundary the pieces around it are encoded one by one and ``exact`` is False.
        """
        cut = Cut([], exact=True)
        edges = [0, *boundaries, len(text)]
        first = 0
        for last in range(1, len(edges)):
            if last == len(edges) - 1 or text.startswith(self._special_texts, edges[last]):
                stretch = self._cut_stretch(text, edges[first : last + 1])
                cut = Cut(cut.pieces + stretch.pieces, cut.exact and stretch.exact)
                first = last
        return cut

    def _cut_stretch(self, text: str, edges: Sequence[int]) -> Cut:
        """``cut`` of the text between two special tokens, across which no tokenizer merges."""
        whole = self.encode(text[edges[0] : edges[-1]])
        marks = [0]
        for edge in edges[1:-1]:
            prefix = self.encode(text[edges[0] : edge])
            if whole[: len(prefix)] != prefix:
                return Cut([self.encode(text[start:end]) for start, end in pairwise(edges)], exact=False)
            marks.append(len(prefix))
        marks.append(len(whole))
        return Cut([whole[start:end] for start, end in pairwise(marks)], exact=True)

    @cached_property
    def closing_ids(self) -> list[int]:
        """What the template writes after a reply when nothing follows: end of turn and separator, e.g. ``[9, 8]``."""
        conversation = [Message("user", "Hello"), Message("assistant", "Hello")]
        return self.suffix_ids(conversation, 1, generation_prompt=False)

    @cached_property
    def generation_prompt_text(self) -> str:
        """The header of a reply, e.g. ``<|im_start|>assistant\\n``; empty for a template that writes none."""
        conversation = [Message("user", "Hello")]
        with_header = self.render(conversation, generation_prompt=True)
        return with_header.removeprefix(self.render(conversation, generation_prompt=False))

    @cached_property
    def opens_thinking(self) -> bool:
        """Whether the header of a reply already opens a think block, so that replies hold only its end."""
        return self.generation_prompt_text.rstrip().endswith("<think>")

    def special_texts_in(self, text: str) -> list[str]:
        """Special tokens spelled out in a message's text: the tokenizer would read them as control tokens."""
        return [special for special in self._special_texts if special in text]


def _to_template(message: Message) -> dict[str, str]:
    fields = {"role": message.role, "content": message.content}
    return fields if message.name is None else {**fields, "name": message.name}


def _special_texts(tokenizer: ChatTokenizer) -> tuple[str, ...]:
    added = getattr(tokenizer, "added_tokens_decoder", {})
    return tuple(token.content for token in added.values() if not token.lstrip)
