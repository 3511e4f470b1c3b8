"""A context rebuilt as the template renders it now, with the sampled ids of earlier replies wherever they still stand.

Needed when a template rewrites history (``history: template``). The template's own text is encoded as part of the whole
rendering; what it shows of a reply is the reply's sampled ids, cut by position; only where no cut of the ids gives the
shown text is it encoded anew, and counted. All of it is untrained context. Not here: when to rebuild.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from dialrl.model.template import ChatTemplate
from dialrl.scenario.message import Message

_MARK = "reply-mark-{}-"


@dataclass(frozen=True)
class SampledReply:
    """A reply by the policy: where it stands in the messages, its ids without the stop token, their text."""

    message_index: int
    ids: list[int]
    text: str
    stop_id: int | None


@dataclass(frozen=True)
class RebuiltContext:
    """``ids`` of the whole rendering; ``reencoded_replies``: how many replies in it are not their sampled ids."""

    ids: list[int]
    reencoded_replies: int


def rebuilt_context(
    template: ChatTemplate, whole: str, messages: Sequence[Message], replies: Sequence[SampledReply]
) -> RebuiltContext:
    """Ids of ``whole`` (the rendering of ``messages`` with the next header), sampled ids kept.

    Worked example: the reply ``[50, 7, 51, 1, 2]`` with the text ``<think>a</think>hello`` is shown as ``hello``: the
    context holds ``[1, 2]`` there, not the ``[3]`` that encoding "hello" would give.
    """
    spans = _reply_spans(template, whole, messages, replies)
    if spans is None:
        return RebuiltContext(template.encode(whole), len(replies))
    pieces = template.cut(whole, [edge for span in spans for edge in span]).pieces
    reencoded = 0
    for number, (reply, (start, end)) in enumerate(zip(replies, spans, strict=True)):
        kept = kept_ids(template, reply, whole[start:end])
        if kept is None:
            reencoded += 1
        else:
            pieces[2 * number + 1] = kept
    return RebuiltContext([token for piece in pieces for token in piece], reencoded)


def kept_ids(template: ChatTemplate, reply: SampledReply, shown: str) -> list[int] | None:
    """The contiguous sampled ids whose text is ``shown``, or None if no cut between two ids gives it."""
    if shown == reply.text:
        return reply.ids
    start = reply.text.rfind(shown)
    if start < 0:
        return None
    first = _ids_before(template, reply, start)
    last = _ids_before(template, reply, start + len(shown))
    return None if first is None or last is None else reply.ids[first:last]


def _ids_before(template: ChatTemplate, reply: SampledReply, position: int) -> int | None:
    """How many ids spell the first ``position`` characters, or None if a token straddles that place."""
    low, high = 0, len(reply.ids)
    while low < high:
        middle = (low + high) // 2
        if len(_decoded(template, reply.ids[:middle])) < position:
            low = middle + 1
        else:
            high = middle
    return low if _decoded(template, reply.ids[:low]) == reply.text[:position] else None


def _decoded(template: ChatTemplate, ids: Sequence[int]) -> str:
    return template.decode(ids) if ids else ""


def _reply_spans(
    template: ChatTemplate, whole: str, messages: Sequence[Message], replies: Sequence[SampledReply]
) -> list[tuple[int, int]] | None:
    """Where each reply stands in ``whole``: between the stretches that the template writes around marked replies."""
    around = _text_around_replies(template, messages, replies)
    if around is None or not whole.startswith(around[0]) or not whole.endswith(around[-1]):
        return None
    spans = []
    start = len(around[0])
    for following in around[1:-1]:
        end = whole.find(following, start)
        if end < 0:
            return None
        spans.append((start, end))
        start = end + len(following)
    end = len(whole) - len(around[-1])
    return [*spans, (start, end)] if end >= start else None


def _text_around_replies(
    template: ChatTemplate, messages: Sequence[Message], replies: Sequence[SampledReply]
) -> list[str] | None:
    marked = list(messages)
    for number, reply in enumerate(replies):
        marked[reply.message_index] = Message("assistant", _MARK.format(number))
    rest = template.render(marked, generation_prompt=True)
    around = []
    for number in range(len(replies)):
        before, found, rest = rest.partition(_MARK.format(number))
        if not found:
            return None
        around.append(before)
    return [*around, rest]
