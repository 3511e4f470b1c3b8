"""The start-up probe: what the real chat template does to a dialogue's history, found on token ids and printed.

It answers before anything is sampled: is every prompt an extension of the last prompt and reply (field case 8)? If not,
does the template only drop the empty think block that it writes itself when thinking is off, or does it strip thoughts?
From this follows the default of ``history``, and what the other mode would cost. Not here: the contexts themselves.
"""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from dialrl.model.context import DialogueContext, History
from dialrl.model.reply import CLOSING, OPENING
from dialrl.model.stopping import end_of_turn_id, stop_ids
from dialrl.model.template import ChatTemplate
from dialrl.scenario.message import Message

_USER = "I could not sleep again, and I keep thinking about what my brother said."
_REPLY = "That sounds hard. What did he say to you?"
_THOUGHT = "They are hurt; ask before advising."
_THOUGHTS = f"{OPENING}\n{_THOUGHT}\n{CLOSING}\n\n"
_EMPTY_BLOCK = re.compile(rf"{OPENING}\s*{CLOSING}\s*\Z")
_PROBED_TURNS = 3
_MODES: tuple[History, ...] = ("append", "template")


@dataclass(frozen=True)
class HistoryCost:
    """Segments of one dialogue and tokens of all its training sequences under a history mode."""

    segments: int
    tokens: int


@dataclass(frozen=True)
class TemplateProbe:
    """What the probe found.

    ``prefix_stable``: on token ids, a plain reply and the next prompt extend the ids so far. ``text_stable``: at least
    their text does (tokens merge across the end of a header). ``rewrites_only_empty_thinking``: the text would, but for
    the empty think block of the header. ``strips_thinking``: thoughts in a reply vanish from history.
    ``thinking_off``: the header of a reply closes an empty think block. ``separator_ids``: what the template writes
    between end of turn and next message. ``costs``: by history mode, for ``turns`` turns of the probe's own dialogue.
    """

    prefix_stable: bool
    text_stable: bool
    rewrites_only_empty_thinking: bool
    strips_thinking: bool
    thinking_off: bool
    has_generation_prompt: bool
    end_of_turn_id: int | None
    separator_ids: tuple[int, ...]
    stop_ids: tuple[int, ...]
    turns: int
    costs: dict[str, HistoryCost]

    @property
    def default_history(self) -> History:
        """``append`` unless the template takes more out of history than an empty think block."""
        keeps_replies = self.text_stable or self.rewrites_only_empty_thinking
        loses_thoughts = self.strips_thinking and not self.thinking_off
        return "append" if keeps_replies and not loses_thoughts else "template"

    def to_details(self) -> dict[str, Any]:
        """The probe as JSON values, for the lineage."""
        lists = {"separator_ids": list(self.separator_ids), "stop_ids": list(self.stop_ids)}
        return {**asdict(self), **lists, "default_history": self.default_history}

    def summary(self, history: History | None = None) -> list[str]:
        """Lines to print: the mode used and its cost, the other's, what the template does, and where replies stop."""
        used = history or self.default_history
        other: History = "template" if used == "append" else "append"
        ours, theirs = self.costs[used], self.costs[other]
        lines = [
            f"history: {used}{'' if history else ' (by probe)'}, {ours.segments} segment(s) in {self.turns} turns",
            f"history: {other} would make {theirs.segments} segment(s), {theirs.tokens / ours.tokens:.1f} x the tokens",
            f"template: {self._behaviour()}",
            f"stop tokens: {list(self.stop_ids)}; separator after a turn: {list(self.separator_ids)}",
        ]
        if not self.has_generation_prompt:
            lines.append("warning: the template writes no header before a reply; the policy must write it itself")
        if self.end_of_turn_id is None:
            lines.append("warning: the template ends a reply with no special token; replies end at the eos token only")
        return lines

    def _behaviour(self) -> str:
        if self.rewrites_only_empty_thinking:
            return "drops only the empty think block of each reply's header from history"
        if not self.text_stable:
            return "rewrites earlier replies: prompts are no extension of the ids so far"
        if self.strips_thinking and not self.thinking_off:
            return "strips thoughts of earlier replies; prompts are stable where there are none"
        if not self.prefix_stable:
            return (
                "extends the text so far, but tokens merge across the end of a reply's header: ids are kept as sampled"
            )
        return "prefix-stable: every prompt extends the ids so far"


def probe_template(
    template: ChatTemplate, model: Any = None, *, stops: Sequence[int] | None = None, turns: int = 15
) -> TemplateProbe:
    """Three turns of the real template on token ids, and the cost of both history modes over ``turns`` turns.

    ``stops``: the engine's stop tokens, where it tells them. Otherwise they are collected from ``model`` (anything with
    ``generation_config`` and ``config``) and the template.
    """
    stops = list(stops or stop_ids(template, model))
    end = end_of_turn_id(template)
    header = template.generation_prompt_text
    empty_block = _EMPTY_BLOCK.search(header)
    texts = _renderings(template, _REPLY)
    strips = _strips_thinking(template)
    thinks = strips and empty_block is None
    reply = (_thoughts(template) if thinks else "") + _REPLY
    stop = end if end is not None else stops[0]
    return TemplateProbe(
        prefix_stable=_ids_extend(template, texts),
        text_stable=_texts_extend(texts, cut_characters=0),
        rewrites_only_empty_thinking=empty_block is not None
        and not _texts_extend(texts, cut_characters=0)
        and _texts_extend(texts, cut_characters=len(empty_block.group())),
        strips_thinking=strips,
        thinking_off=empty_block is not None,
        has_generation_prompt=bool(header),
        end_of_turn_id=end,
        separator_ids=tuple(template.closing_ids[1:] if end is not None else template.closing_ids),
        stop_ids=tuple(stops),
        turns=turns,
        costs={mode: _cost(template, mode, reply, stop, turns) for mode in _MODES},
    )


def _renderings(template: ChatTemplate, reply: str) -> list[str]:
    """The prompts of three turns as text, every reply being ``reply``."""
    messages: list[Message] = []
    texts = []
    for _ in range(_PROBED_TURNS):
        messages.append(Message("user", _USER))
        texts.append(template.render(messages, generation_prompt=True))
        messages.append(Message("assistant", reply))
    return texts


def _ids_extend(template: ChatTemplate, texts: Sequence[str]) -> bool:
    reply = template.encode(_REPLY)
    ids = [template.encode(text) for text in texts]
    return all(after[: len(before) + len(reply)] == before + reply for before, after in pairwise(ids))


def _texts_extend(texts: Sequence[str], *, cut_characters: int) -> bool:
    """Whether each prompt begins with the one before it, less its last characters, and the reply."""
    return all(after.startswith(before[: len(before) - cut_characters] + _REPLY) for before, after in pairwise(texts))


def _thoughts(template: ChatTemplate) -> str:
    return _THOUGHTS.removeprefix(OPENING) if template.opens_thinking else _THOUGHTS


def _strips_thinking(template: ChatTemplate) -> bool:
    return _THOUGHT not in _renderings(template, _thoughts(template) + _REPLY)[1]


def _cost(template: ChatTemplate, history: History, reply: str, stop: int, turns: int) -> HistoryCost:
    context = DialogueContext(template, history)
    reply_ids = [*template.encode(reply), stop]
    tokens = 0
    for turn in range(turns):
        message = [Message("user", _USER)]
        prompt = context.open(message) if turn == 0 else context.next(message)
        tokens += len(prompt.new_ids) + len(reply_ids)
        context.add_reply(reply_ids, reply, "stop")
    return HistoryCost(context.segment + 1, tokens)
