"""One dialogue as the policy sees it: token ids, grown turn by turn, in one or more segments.

A segment is one training sequence: prompt and reply ids in turn, each id once. ``history="append"`` keeps one segment:
ids so far plus what a whole rendering holds after the last reply. ``history="template"`` starts a new segment wherever
the template's rendering is no extension of the ids so far (thoughts stripped from history, field case 3). What was
sampled is never decoded and encoded again to be trained. Not here: sampling, and the environment that answers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from dialrl.errors import RunError
from dialrl.model.rebuild import SampledReply, rebuilt_context
from dialrl.model.template import ChatTemplate
from dialrl.scenario.message import Message

History = Literal["append", "template"]


@dataclass(frozen=True)
class TurnPrompt:
    """What is new in front of a reply: columns ``segment`` and ``prompt_ids``. Mask 0 throughout (field case 4)."""

    segment: int
    new_ids: list[int]


@dataclass
class DialogueContext:
    """Use: ``open``, then ``add_reply`` and ``next`` in turn, ``final`` at the end.

    Example with the toy template of field case 2 (9 ends a turn, 8 separates): after ``open`` gave ``[1, 9, 8]``,
    ``add_reply([1, 2, 9], "hello", "stop")`` and ``next([Message("user", "he")])`` give ``new_ids == [8, 1, 9, 8]``:
    the separator that the sampler never saw, the message, and the header of the reply.

    ``reencoded_replies`` counts earlier replies in a rebuilt context whose sampled ids could not be cut to what the
    template shows of them. Raises RunError when called out of turn.
    """

    template: ChatTemplate
    history: History = "append"
    segment: int = 0
    context_ids: list[int] = field(default_factory=list)
    reencoded_replies: int = 0
    _messages: list[Message] = field(default_factory=list)
    _replies: list[SampledReply] = field(default_factory=list)
    _text: str = ""
    _awaits_reply: bool = False

    def open(self, messages: Sequence[Message]) -> TurnPrompt:
        """The first prompt: the whole conversation so far with the header of the reply."""
        self._require(not self._messages, "open() was called twice")
        self._messages = list(messages)
        self._text = self.template.render(self._messages, generation_prompt=True)
        self._awaits_reply = True
        return self._extended(self.template.encode(self._text))

    def add_reply(self, reply_ids: Sequence[int], text: str, finish_reason: str) -> None:
        """Take a sampled reply: ``text`` is its decoding without the stop token (``ChatTemplate.decode_reply``)."""
        self._require(self._awaits_reply, "add_reply() was called before open() or next()")
        stopped = finish_reason == "stop"
        self._require(not stopped or len(reply_ids) > 0, "a reply that stopped holds no stop token")
        spoken = list(reply_ids[:-1] if stopped else reply_ids)
        stop_id = reply_ids[-1] if stopped else None
        self._replies.append(SampledReply(len(self._messages), spoken, text, stop_id))
        self._messages.append(Message("assistant", text))
        self._text += text
        self.context_ids.extend(reply_ids)
        self._awaits_reply = False

    def next(self, messages: Sequence[Message]) -> TurnPrompt:
        """The prompt of the next reply, after the environment's ``messages``."""
        self._require(bool(self._replies) and not self._awaits_reply, "next() was called before add_reply()")
        self._messages.extend(messages)
        self._awaits_reply = True
        if self.history == "append":
            return self._extended(self._after_last_reply(generation_prompt=True))
        return self._next_by_template()

    def final(self, messages: Sequence[Message]) -> list[int]:
        """Ids of what followed the last reply (column ``final_ids``): no header follows; empty without messages."""
        self._require(bool(self._replies) and not self._awaits_reply, "final() was called before add_reply()")
        if not messages:
            return []
        self._messages.extend(messages)
        return self._after_last_reply(generation_prompt=False)

    def _next_by_template(self) -> TurnPrompt:
        whole = self.template.render(self._messages, generation_prompt=True)
        suffix = self.template.suffix_text(self._messages, self._replies[-1].message_index, generation_prompt=True)
        extends = whole == self._text + suffix
        self._text = whole
        if extends and self._stop_is_rendered():
            return self._extended(self._after_last_reply(generation_prompt=True))
        rebuilt = rebuilt_context(self.template, whole, self._messages, self._replies)
        self.reencoded_replies += rebuilt.reencoded_replies
        self.segment += 1
        self.context_ids = []
        return self._extended(rebuilt.ids)

    def _after_last_reply(self, *, generation_prompt: bool) -> list[int]:
        """The suffix of a whole rendering, less the end of turn where the policy sampled it itself."""
        reply = self._replies[-1]
        suffix = self.template.suffix_ids(self._messages, reply.message_index, generation_prompt=generation_prompt)
        return suffix[self._sampled_length(suffix) :]

    def _sampled_length(self, suffix: Sequence[int]) -> int:
        """How many ids at the start of ``suffix`` the sampled stop token stands for.

        0 for a reply that was cut, or that stopped at another token than the template's: then the template's end of
        turn is added, untrained.
        """
        stop_id = self._replies[-1].stop_id
        closing = list(suffix[: max(1, len(self.template.closing_ids))])
        return closing.index(stop_id) + 1 if stop_id in closing else 0

    def _stop_is_rendered(self) -> bool:
        reply = self._replies[-1]
        if reply.stop_id is None:
            return True
        suffix = self.template.suffix_ids(self._messages, reply.message_index, generation_prompt=True)
        return self._sampled_length(suffix) > 0

    def _extended(self, new_ids: list[int]) -> TurnPrompt:
        self.context_ids.extend(new_ids)
        return TurnPrompt(self.segment, new_ids)

    def _require(self, holds: bool, fault: str) -> None:
        if not holds:
            raise RunError(f"Dialogue context after {len(self._replies)} replies: {fault}. Call open, add_reply, next.")
