"""The director: sees state, story and dialogue, and calls exactly one tool a turn; what it decides reaches the actor
as guidance, and nothing else does. Not here: the call (``session``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dialrl.endpoint.chat import ToolCall
from dialrl.environment.base import DirectorAction
from dialrl.scenario.support_card import SupportCard

LONGEST_ARGUMENT = 300
INVALID, SEVERAL, ENDED = "director_invalid", "director_several", "director_ended"
OBSERVE, END = "observe", "end_conversation"
PURPOSES = {
    "reveal_stage": "Let the person tell the next part of their story.",
    "reveal_memory": "Let a memory of that period of life come up.",
    OBSERVE: "Change nothing; wait for what the helper does.",
    "continue_focus": "Let the person stay with what was last spoken of, with the focus given.",
    "adjust_axis": "Let the person lean towards another need.",
    "turning_point": "Let something happen or come to mind that moves the conversation on.",
    END: "The person's need is met; let the conversation end.",
}


@dataclass
class Story:
    """What of a card has been handed to the actor so far. A stage or memory is handed over once."""

    card: SupportCard
    stages: list[str] = field(default_factory=list)
    memories: list[str] = field(default_factory=list)

    @property
    def stages_left(self) -> list[str]:
        return [stage for stage in self.card.stages.told() if stage not in self.stages]

    @property
    def memories_left(self) -> list[str]:
        return [period for period in self.card.memories.told() if period not in self.memories]

    def told(self) -> list[str]:
        """The pieces the actor may speak of."""
        stages, memories = self.card.stages.told(), self.card.memories.told()
        return [*(stages[name] for name in self.stages), *(memories[name] for name in self.memories)]


def tools(story: Story, axes: Sequence[str], *, may_end: bool) -> list[dict[str, Any]]:
    """The tools as the endpoint takes them: only what is left to reveal, the end only where the success rule holds."""
    text = {"type": "string", "maxLength": LONGEST_ARGUMENT}
    offered: dict[str, dict[str, Any]] = {OBSERVE: {}}
    if story.stages_left:
        offered["reveal_stage"] = {"stage": {"type": "string", "enum": story.stages_left}}
    if story.memories_left:
        offered["reveal_memory"] = {"period": {"type": "string", "enum": story.memories_left}}
    offered["continue_focus"] = {"focus": text}
    offered["adjust_axis"] = {"axis": {"type": "string", "enum": list(axes)}}
    offered["turning_point"] = {"event": text}
    if may_end:
        offered[END] = {}
    return [_function(name, properties) for name, properties in offered.items()]


def _function(name: str, properties: Mapping[str, Any]) -> dict[str, Any]:
    parameters = {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }
    return {"type": "function", "function": {"name": name, "description": PURPOSES[name], "parameters": parameters}}


def decided(calls: Sequence[ToolCall], offered: Sequence[Mapping[str, Any]]) -> DirectorAction | None:
    """The first tool called, if it was offered and its argument is one it may have; None otherwise.

    One tool a turn: further calls decide nothing (the session flags them).
    """
    known = {tool["function"]["name"]: tool["function"]["parameters"]["properties"] for tool in offered}
    if not calls or calls[0].name not in known or calls[0].arguments is None:
        return None
    name, arguments = calls[0].name, calls[0].arguments
    if not known[name]:
        return DirectorAction(name)
    ((key, kind),) = known[name].items()
    argument = arguments.get(key)
    if not isinstance(argument, str) or not argument.strip() or argument not in kind.get("enum", [argument]):
        return None
    return DirectorAction(name, argument[:LONGEST_ARGUMENT])


def hand_over(action: DirectorAction, story: Story) -> str | None:
    """Note what ``action`` reveals; that piece alone, or the argument, for the guidance. None: nothing to say."""
    if action.tool == "reveal_stage" and action.argument:
        story.stages.append(action.argument)
        return story.card.stages.told()[action.argument]
    if action.tool == "reveal_memory" and action.argument:
        story.memories.append(action.argument)
        return story.card.memories.told()[action.argument]
    return action.argument
