"""One conversation with a simulated user: at each reply it first appraises, which moves its emotion, then speaks.

The appraisal stands in the column ``director`` (tool ``appraise``, the change, the thought): it is what steers the next
line. The outcome is a hundredth of the emotion, whenever the conversation ends. A simulator that gives no number, or
says nothing, twice, breaks the conversation, which is tried again; no change is ever made up.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dialrl.endpoint.chat import ChatReply, chat
from dialrl.endpoint.failure import ModelCallError
from dialrl.environment.base import DialogueState, DirectorAction, EnvironmentStep, PolicyReply
from dialrl.environment.sage.appraisal import Appraisal, appraisal_schema, read_appraisal
from dialrl.environment.sage.profiles import Profile
from dialrl.environment.sage.rules import FAILURE, SUCCESS
from dialrl.environment.simulator import SimulatorLine, read_line, simulator_view
from dialrl.scenario.fence import fenced
from dialrl.scenario.message import Message, Usage
from dialrl.seeds import seed_for

if TYPE_CHECKING:
    from dialrl.environment.sage.environment import SageEnvironment

SIMULATOR = "simulator"
APPRAISE = "appraise"
_TRIES = 2


class SageSession:
    """The conversation of one profile; ``emotion`` is where the user is now."""

    def __init__(self, environment: "SageEnvironment", profile: Profile, seed: int) -> None:
        self._environment, self._profile, self._seed = environment, profile, seed
        self._dialogue: list[Message] = []
        self._usage: list[Usage] = []
        self.emotion = environment.rules.start

    async def opening(self) -> EnvironmentStep:
        """The policy's system prompt and the profile's first line."""
        self._dialogue = [Message("user", self._profile.first_talk)]
        prompt = self._environment.policy_prompt()
        before = () if prompt is None else (Message("system", prompt),)
        return EnvironmentStep((*before, *self._dialogue), outcome=self._outcome())

    async def respond(self, reply: PolicyReply, state: DialogueState | None) -> EnvironmentStep:
        """Appraisal, then line; over when the user is content, has had enough, or takes leave."""
        self._dialogue.append(Message("assistant", reply.text))
        self._usage = []
        appraisal = await self._appraise(reply.turn)
        self.emotion = self._environment.rules.after(self.emotion, appraisal.change)
        line = await self._line(reply.turn, appraisal)
        message = Message("user", line.text)
        self._dialogue.append(message)
        return EnvironmentStep(
            (message,) if line.text.strip() else (),
            self._end(line),
            outcome=self._outcome(),
            flags=line.flags,
            director=DirectorAction(APPRAISE, f"{appraisal.change:+g}", appraisal.analysis),
            usage=tuple(self._usage),
        )

    def _end(self, line: SimulatorLine) -> str | None:
        if self.emotion >= SUCCESS:
            return "success"
        if self.emotion < FAILURE:
            return "collapse"
        return "farewell" if line.ended else None

    def _outcome(self) -> float:
        return self._environment.rules.outcome(self.emotion)

    async def _appraise(self, turn: int) -> Appraisal:
        messages = self._messages("sage/appraise.jinja", [])
        for attempt in range(_TRIES):
            reply = await self._ask(messages, self._seed_of(turn, APPRAISE, attempt), **self._format())
            found = read_appraisal(reply.text)
            if found is not None:
                return found
        raise ModelCallError("bad_response", f"the simulator gave no change of emotion, {_TRIES} times")

    async def _line(self, turn: int, appraisal: Appraisal) -> SimulatorLine:
        messages = self._messages("sage/speak.jinja", simulator_view(self._dialogue), appraisal=appraisal)
        for attempt in range(_TRIES):
            reply = await self._ask(messages, self._seed_of(turn, "speak", attempt))
            if reply.text.strip():
                marker = self._environment.options.end_marker
                return read_line(reply.text.strip(), self._dialogue, end_marker=marker)
        raise ModelCallError("empty", f"the simulator said nothing, {_TRIES} times")

    def _messages(self, prompt: str, dialogue: Sequence[Message], **more: Any) -> list[Message]:
        rules = self._environment.rules
        shown = self._environment.prompts.render(
            prompt,
            profile=self._profile,
            emotion=self.emotion,
            largest_change=rules.largest_change,
            dialogue=fenced(self._dialogue),
            end_marker=self._environment.options.end_marker,
            **more,
        )
        system, _, start = shown.partition("\n===\n")
        return [Message("system", system.strip()), Message("user", start.strip()), *dialogue]

    async def _ask(self, messages: Sequence[Message], seed: int, **further: Any) -> ChatReply:
        settings, route = self._environment.simulator, f"{self._profile.id}/{self._seed}"
        reply = await chat(self._environment.calls, SIMULATOR, settings, messages, seed=seed, route=route, **further)
        self._usage.append(reply.usage)
        return reply

    def _format(self) -> dict[str, Any]:
        wanted = self._environment.options.response_format
        if wanted == "none":
            return {}
        if wanted == "json_object":
            return {"response_format": {"type": "json_object"}}
        options = self._environment.options
        schema = appraisal_schema(self._environment.rules.largest_change, options.longest_analysis)
        named = {"name": "appraisal", "strict": True, "schema": schema}
        return {"response_format": {"type": "json_schema", "json_schema": named}}

    def _seed_of(self, turn: int, what: str, attempt: int) -> int:
        return seed_for(self._seed, 0, self._profile.id, 0, turn, what, attempt)
