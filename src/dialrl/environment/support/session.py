"""One dialogue with a simulated person: director, then actor, each turn.

Who sees what is a contract. The actor sees its card without stages and memories (unless there is no director), the
pieces handed over so far, the guidance of this turn, and the dialogue from its own side. The director sees state, story
and dialogue. The policy sees what is said. An error's text reaches nobody: a director that fails leaves the turn
without guidance, flagged; an actor that fails breaks the dialogue, which is tried again.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dialrl.endpoint.chat import ChatReply, chat
from dialrl.endpoint.failure import ModelCallError
from dialrl.environment.base import DialogueState, DirectorAction, EnvironmentStep, PolicyReply
from dialrl.environment.simulator import SimulatorLine, read_line, simulator_view
from dialrl.environment.support.director import (
    END,
    ENDED,
    INVALID,
    OBSERVE,
    SEVERAL,
    Story,
    decided,
    hand_over,
    tools,
)
from dialrl.environment.support.oddities import line_oddities, spans_of
from dialrl.scenario.fence import fenced, shortened
from dialrl.scenario.message import Message, Usage
from dialrl.scenario.support_card import SupportCard
from dialrl.seeds import seed_for

if TYPE_CHECKING:
    from dialrl.environment.support.environment import SupportEnvironment

DIRECTOR_FAILED = "director_failed"
ACTOR, DIRECTOR = "actor", "director"
_TRIES_FOR_A_LINE = 2
_DESCRIPTION = ("person", "threshold", "topic", "hopes", "priorities", "trigger", "interlude", "strategy")


class SupportSession:
    """The dialogue of one person. ``seed`` decides what the person says, as far as the endpoint keeps to seeds."""

    def __init__(self, environment: "SupportEnvironment", card: SupportCard, seed: int) -> None:
        self._environment = environment
        self._card = card
        self._seed = seed
        self._story = Story(card)
        if environment.options.director is None:  # nobody would hand the story over
            self._story.stages, self._story.memories = self._story.stages_left, self._story.memories_left
        self._dialogue: list[Message] = []
        described = {name: value for name, value in card.model_dump().items() if name in _DESCRIPTION}
        self._description = described
        self._spans = spans_of({name: value for name, value in described.items() if name != "trigger"})

    async def opening(self) -> EnvironmentStep:
        """The system prompt and the person's opening line: the card's, or one that all of the group share."""
        usage: tuple[Usage, ...] = ()
        flags: tuple[str, ...] = ()
        text = self._card.opening
        if text is None:
            line, usage = await self._first_line()
            text, flags = line.text, line.flags
        opening = Message("user", text)
        self._dialogue = [opening]
        first = self._environment.policy_prompt(self._card)
        messages = (opening,) if first is None else (Message("system", first), opening)
        return EnvironmentStep(messages, flags=flags, usage=usage)

    async def _first_line(self) -> tuple[SimulatorLine, tuple[Usage, ...]]:
        """The actor's opening line. The seed knows the card alone: every member of a group makes the same call, once.

        A call that failed for good stands in the journal, so it is tried again by another seed. An actor that opens
        with a goodbye alone has said nothing.
        """
        for attempt in range(_TRIES_FOR_A_LINE):
            seed = seed_for(0, 0, self._card.id, 0, 0, "opening", attempt)
            try:
                line, usage = await self._line(seed, guidance=None)
            except ModelCallError:
                if attempt + 1 == _TRIES_FOR_A_LINE:
                    raise
                continue
            if line.text.strip():
                return line, usage
        raise ModelCallError("empty", "the actor opened with nothing but a goodbye")

    async def respond(self, reply: PolicyReply, state: DialogueState | None) -> EnvironmentStep:
        """Director, then actor."""
        self._dialogue.append(Message("assistant", reply.text))
        action, flags, usage = await self._direct(reply.turn, state)
        if action is not None and action.tool == END:
            return EnvironmentStep((), "success", flags=(*flags, ENDED), director=action, usage=usage)
        guidance = None if action is None else action.guidance
        line, used = await self._line(self._seed_of(reply.turn, ACTOR), guidance, turn=reply.turn)
        message = Message("user", line.text)
        self._dialogue.append(message)
        said = (message,) if line.text.strip() else ()
        reason = "farewell" if line.ended else None
        return EnvironmentStep(said, reason, flags=(*flags, *line.flags), director=action, usage=(*usage, *used))

    async def _direct(
        self, turn: int, state: DialogueState | None
    ) -> tuple[DirectorAction | None, tuple[str, ...], tuple[Usage, ...]]:
        """What the director decides, with the guidance for the actor; flagged where it gave nothing usable."""
        settings = self._environment.options.director
        if settings is None:
            return None, (), ()
        offered = tools(self._story, self._axes(state), may_end=state is not None and state.success)
        messages = [
            Message(
                "system", self._environment.prompts.render("support/director.jinja", part="rules", **self._seen(state))
            ),
            Message(
                "user", self._environment.prompts.render("support/director.jinja", part="now", **self._seen(state))
            ),
        ]
        try:
            reply = await self._ask(
                DIRECTOR, settings, messages, self._seed_of(turn, DIRECTOR), tools=offered, tool_choice="required"
            )
        except ModelCallError:
            return None, (DIRECTOR_FAILED,), ()
        action = decided(reply.tool_calls, offered)
        flags = (SEVERAL,) if len(reply.tool_calls) > 1 else ()
        if action is None:
            return None, (*flags, INVALID), (reply.usage,)
        piece = hand_over(action, self._story)
        guidance = None if action.tool in (OBSERVE, END) else self._environment.guidance(action, piece)
        return DirectorAction(action.tool, action.argument, guidance), flags, (reply.usage,)

    def _seen(self, state: DialogueState | None) -> dict[str, Any]:
        """What the director sees."""
        return {
            "card": self._card,
            "story": self._story,
            "position": None if state is None else dict(zip(self._axes(state), state.position, strict=False)),
            "dialogue": fenced(self._dialogue, self._environment.options.longest_text_characters),
        }

    def _axes(self, state: DialogueState | None) -> list[str]:
        """The axes in the order of the state: the rubric's; without a judge in the loop those the card speaks of."""
        return list(state.axes if state is not None and state.axes else self._card.priorities)

    async def _line(
        self, seed: int, guidance: str | None, *, turn: int | None = None
    ) -> tuple[SimulatorLine, tuple[Usage, ...]]:
        """The person's next line. An empty one is asked for again, with another seed, then a failure."""
        settings = self._environment.actor
        prompt = self._environment.prompts.render(
            "support/actor.jinja",
            card=self._card,
            description=self._description,
            told=self._story.told(),
            guidance=guidance,
            end_marker=self._environment.options.end_marker,
        )
        start = Message("user", self._environment.prompts.render("support/start.jinja", card=self._card).strip())
        longest = self._environment.options.longest_text_characters
        said = [replace(one, content=shortened(one.content, longest)) for one in simulator_view(self._dialogue)]
        messages = [Message("system", prompt), start, *said]
        usage: list[Usage] = []
        for attempt in range(_TRIES_FOR_A_LINE):
            reply = await self._ask(ACTOR, settings, messages, seed_for(seed, 0, "", 0, 0, "line", attempt))
            usage.append(reply.usage)
            if reply.text.strip():
                return self._read(reply, turn), tuple(usage)
        raise ModelCallError("empty", "the actor said nothing, twice")

    def _read(self, reply: ChatReply, turn: int | None) -> SimulatorLine:
        options = self._environment.options
        line = read_line(reply.text.strip(), self._dialogue, end_marker=options.end_marker)
        odd = line_oddities(
            line.text,
            spans=self._spans,
            end_marker=options.end_marker,
            is_early_end=line.ended and turn is not None and turn + 1 < options.early_turns,
            is_cut=reply.finish_reason == "length",
        )
        return SimulatorLine(line.text, line.ended, (*line.flags, *odd))

    async def _ask(self, role: str, settings: Any, messages: Sequence[Message], seed: int, **further: Any) -> ChatReply:
        route = f"{self._card.id}/{self._seed}"
        return await chat(self._environment.calls, role, settings, messages, seed=seed, route=route, **further)

    def _seed_of(self, turn: int, role: str) -> int:
        return seed_for(self._seed, 0, self._card.id, 0, turn, role)
