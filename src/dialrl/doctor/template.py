"""Three turns of the policy's real chat template: history modes and their cost, separators, which tokens are trained.

Needs the tokenizer alone. The spans of the dialogue are data; colours are the view's. Not here: the probe itself
(``dialrl.model.probe``), log-probs (``logprobs``).
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from dialrl.doctor.check import Check, Status
from dialrl.doctor.software import installed
from dialrl.doctor.subject import Subject
from dialrl.errors import DialrlError
from dialrl.model.context import DialogueContext, History
from dialrl.model.probe import TemplateProbe, probe_template
from dialrl.model.template import ChatTemplate
from dialrl.scenario.message import Message

AREA = "Template"
SYSTEM = "You listen."
EXCHANGES = (
    ("I could not sleep again.", "That sounds hard. Since when?"),
    ("Since my brother left.", "You miss him."),
    ("Every day.", "What do you miss most?"),
)
_THOUGHTS = "<think>\nAsk first.\n</think>\n\n"


@dataclass(frozen=True)
class Span:
    """Neighbouring tokens of one kind: context, or sampled by the policy and trained. ``text`` is their decoding."""

    segment: int
    trained: bool
    tokens: int
    text: str


def examine_template(subject: Subject, directory: Path) -> tuple[list[Check], ChatTemplate | None]:
    """The probe's findings on the policy in ``directory``, and its template, if there is one."""
    if installed("transformers") is None:
        missing = "not looked at: transformers is not installed"
        return [Check(AREA, "template", "failed", missing, "pip install 'dialrl[train]'")], None
    from dialrl.model.loading import load_tokenizer

    try:
        template = ChatTemplate(load_tokenizer(directory), subject.template_options)
        probe = probe_template(template, model_stops(directory))
        return _findings(subject, template, probe), template
    except DialrlError as error:
        return [Check(AREA, "template", "failed", str(error))], None


def model_stops(directory: Path) -> SimpleNamespace:
    """Where a model names its stop tokens, read without loading it."""
    return SimpleNamespace(
        **{
            name: SimpleNamespace(eos_token_id=_read(directory / f"{name}.json").get("eos_token_id"))
            for name in ("generation_config", "config")
        }
    )


def _read(file: Path) -> Mapping[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, Mapping) else {}


def _findings(subject: Subject, template: ChatTemplate, probe: TemplateProbe) -> list[Check]:
    asked = subject.pipeline.rollout.history if subject.pipeline else "auto"
    used: History = probe.default_history if asked == "auto" else asked
    behaviour = probe.summary(used)[2].removeprefix("template: ")
    return [
        Check(AREA, "template", "ok", behaviour, details=probe.to_details()),
        _history(probe, used, asked=asked),
        _ends(template, probe),
        _trained(template, used, probe),
    ]


def _history(probe: TemplateProbe, used: History, *, asked: str) -> Check:
    """What each mode costs, in tokens and segments of a dialogue."""
    costs = "; ".join(
        f"{mode}: {cost.segments} segment(s), {cost.tokens:,} tokens" for mode, cost in sorted(probe.costs.items())
    )
    found = f"{used}{' (by probe)' if asked == 'auto' else ' (as set)'}. In {probe.turns} turns {costs}"
    other = probe.costs["append" if used == "template" else "template"].tokens
    dear = probe.costs[used].tokens > 1.5 * other
    advice = None
    if dear and probe.default_history != used:
        advice = f"history: {probe.default_history} is the probe's choice and takes less."
    elif dear:
        advice = "The template strips thoughts of earlier turns. With thinking off (template_options) it would not."
    status: Status = "warning" if dear and advice else "ok"
    return Check(AREA, "history", status, found, advice, {name: asdict(cost) for name, cost in probe.costs.items()})


def _ends(template: ChatTemplate, probe: TemplateProbe) -> Check:
    """Where replies stop, and what the template writes before the next message."""
    shown = ", ".join(f"{token} {template.decode([token])!r}" for token in probe.stop_ids)
    separator = template.decode(probe.separator_ids) if probe.separator_ids else ""
    found = f"replies stop at {shown}; separator after a turn: {separator!r} (never trained)"
    details = {"stop_ids": list(probe.stop_ids), "separator_ids": list(probe.separator_ids)}
    if probe.end_of_turn_id is None:
        advice = "The template ends a reply with plain text. Add an end-of-turn token to it, or expect cut replies."
        return Check(AREA, "ends", "warning", found, advice, details)
    if not probe.has_generation_prompt:
        advice = "The template writes no header before a reply; the policy must write it itself."
        return Check(AREA, "ends", "warning", found, advice, details)
    return Check(AREA, "ends", "ok", found, details=details)


def _trained(template: ChatTemplate, used: History, probe: TemplateProbe) -> Check:
    found = spans(template, used, probe)
    trained = sum(span.tokens for span in found if span.trained)
    everything = sum(span.tokens for span in found)
    text = f"{trained} of {everything} tokens of three turns, history {used}"
    return Check(AREA, "trained", "ok", text, details={"spans": [asdict(span) for span in found]})


def spans(template: ChatTemplate, history: History, probe: TemplateProbe) -> list[Span]:
    """Three turns as they are trained: prompts and replies in turn, in every segment.

    Replies think where the template takes thoughts out of history, so that one sees what becomes of them.
    """
    thinks = probe.strips_thinking and not probe.thinking_off
    stop = probe.end_of_turn_id if probe.end_of_turn_id is not None else probe.stop_ids[0]
    context = DialogueContext(template, history)
    found: list[Span] = []
    for turn, (said, reply) in enumerate(EXCHANGES):
        user = Message("user", said)
        prompt = context.open(_opening(template, user)) if turn == 0 else context.next([user])
        text = (_thoughts(template) if thinks else "") + reply
        ids = [*template.encode(text), stop]
        found.append(Span(prompt.segment, False, len(prompt.new_ids), template.decode(prompt.new_ids)))
        found.append(Span(prompt.segment, True, len(ids), template.decode(ids)))
        context.add_reply(ids, text, "stop")
    return found


def _opening(template: ChatTemplate, user: Message) -> list[Message]:
    """With a system prompt, where the template takes one."""
    opening = [Message("system", SYSTEM), user]
    try:
        template.render(opening, generation_prompt=True)
    except DialrlError:
        return [user]
    return opening


def _thoughts(template: ChatTemplate) -> str:
    return _THOUGHTS.removeprefix("<think>") if template.opens_thinking else _THOUGHTS
