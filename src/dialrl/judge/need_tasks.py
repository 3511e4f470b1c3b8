"""A dialogue as a listener hears it: where it is asked for the hidden need, and what its answers are worth.

The listener reads the messages by its own chat template (system prompts left out) and is asked twice a turn: after the
policy's reply, and after what the user said to it. Only what lies between the two is the user's. Pure but for the
template. Source: docs/stages/judge-information-gain.md, *Hidden needs*.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from dialrl.judge.belief_tasks import Row
from dialrl.judge.need_sets import NeedSet, quotes
from dialrl.model.belief.gold import GoldAlias
from dialrl.model.belief.tree import BeliefTask
from dialrl.model.template import ChatTemplate
from dialrl.scenario.message import Message

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Hearing:
    """Messages of a dialogue; ``replied`` and ``answered``: their number after a turn's reply, and after its answer."""

    messages: list[Message] = field(default_factory=list)
    replied: list[int | None] = field(default_factory=list)
    answered: list[int | None] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)

    def places(self) -> list[int]:
        """Where the listener is asked: both ends of every turn that got an answer."""
        pairs = zip(self.replied, self.answered, strict=True)
        return sorted({place for pair in pairs if None not in pair for place in pair if place is not None})


def hear(rows: Sequence[Row]) -> Hearing:
    """The dialogue ``rows``. A turn without a reply ends it; one that nobody answered has no gain."""
    heard = Hearing()
    for number, row in enumerate(rows):
        heard.messages.extend(_spoken(row["messages"]))
        if row["reply"] is None or row.get("status") == "error":
            heard.replied.append(None)
        else:
            heard.messages.append(Message("assistant", row["reply"]))
            heard.replied.append(len(heard.messages))
        after = rows[number + 1]["messages"] if number + 1 < len(rows) else row.get("final_messages")
        answer = _spoken(after)
        heard.answered.append(len(heard.messages) + len(answer) if answer else None)
        heard.answers.append("\n".join(message.content for message in answer))
    heard.messages.extend(_spoken(rows[-1].get("final_messages")))
    return heard


def _spoken(messages: Any) -> list[Message]:
    taken = [Message.from_row(message) for message in messages or ()]
    return [message for message in taken if message.role != "system"]


@dataclass(frozen=True)
class NeedTasks:
    """Tasks of one dialogue, and the places that each cut of each task stands for."""

    rows: Sequence[Row]
    hearing: Hearing
    needs: NeedSet
    tasks: list[BeliefTask]
    places: list[tuple[int, ...]]

    def columns(self, beliefs: Sequence[Floats], *, tau: float, quote_characters: int) -> list[Row]:
        """Belief columns of the rows, from mean log-probs (cuts, candidates) a task; not finite: null.

        Example: two needs, tau 1, mean log-probs -2, -2 after the reply and -1, -2 after the answer: log q of the
        first is log .5 = -.6931 before and -.3133 after it.
        """
        chosen: dict[int, Floats] = {}
        for places, belief in zip(self.places, beliefs, strict=True):
            for place, logprob_C in zip(places, belief, strict=True):
                if np.isfinite(logprob_C).all():
                    chosen[place] = log_softmax(logprob_C / tau)
        return [self._columns(turn, chosen, quote_characters) for turn in range(len(self.rows))]

    def _columns(self, turn: int, chosen: dict[int, Floats], quote_characters: int) -> Row:
        replied, answered = self.hearing.replied[turn], self.hearing.answered[turn]
        before = None if replied is None or answered is None else chosen.get(replied)
        after = None if replied is None or answered is None else chosen.get(answered)
        target = self.needs.candidates[self.needs.target]
        if after is not None and quotes(self.hearing.answers[turn], target, quote_characters):
            after = before
        row = self.rows[turn]
        return {
            "group_id": row["group_id"],
            "sample": row["sample"],
            "turn": row["turn"],
            "belief_before": _of(before, self.needs.target),
            "belief_after": _of(after, self.needs.target),
            "belief_before_shuffled": _of(before, self.needs.shuffled),
            "belief_after_shuffled": _of(after, self.needs.shuffled),
            "belief_alias": None if after is None else self.needs.candidates[int(after.argmax())],
        }


def _of(logprob_C: Floats | None, place: int | None) -> float | None:
    return None if logprob_C is None or place is None else float(logprob_C[place])


def log_softmax(value_C: Floats) -> Floats:
    """log q (C,) over the candidates. Example: (0, 0) -> (-.6931, -.6931)."""
    shifted_C = value_C - value_C.max()
    return np.asarray(shifted_C - np.log(np.exp(shifted_C).sum()))


def need_tasks(
    rows: Sequence[Row],
    needs: NeedSet,
    golds: Sequence[GoldAlias],
    template: ChatTemplate,
    *,
    limit_tokens: int | None,
) -> NeedTasks:
    """Tasks of the dialogue ``rows`` for the candidates ``golds``, whose wrappers begin with a reply's header.

    One task where the template only ever adds to what it rendered, else one a place. Places from which the longest
    candidate would reach beyond ``limit_tokens`` are left out.
    """
    made = NeedTasks(rows, hear(rows), needs, [], [])
    branch = max(len(gold.wrapper_ids) + len(gold.gold_ids) for gold in golds)
    for ids, cuts in _rendered(template, made.hearing.messages, made.hearing.places()):
        kept = {place: cut for place, cut in cuts.items() if limit_tokens is None or cut + branch <= limit_tokens}
        if kept:
            trunk = np.array(ids[: max(kept.values())], dtype=np.int64)
            made.tasks.append(BeliefTask(trunk, tuple(kept.values()), tuple(golds)))
            made.places.append(tuple(kept))
    return made


def _rendered(
    template: ChatTemplate, messages: Sequence[Message], places: Sequence[int]
) -> list[tuple[list[int], dict[int, int]]]:
    """Ids to read, and the cut in them of each place."""
    texts = {place: template.render(messages[:place], generation_prompt=False) for place in places}
    if not texts:
        return []
    whole = texts[places[-1]]
    if all(whole.startswith(text) for text in texts.values()):
        cut = template.cut(whole, [len(texts[place]) for place in places[:-1]])
        if cut.exact:
            ends = np.cumsum([len(piece) for piece in cut.pieces]).tolist()
            return [(list(chain.from_iterable(cut.pieces)), dict(zip(places, ends, strict=True)))]
    encoded = {place: template.encode(text) for place, text in texts.items()}
    return [(ids, {place: len(ids)}) for place, ids in encoded.items()]
