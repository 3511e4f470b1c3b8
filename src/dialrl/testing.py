"""Fakes for tests of pipelines: a scripted policy, user and judge, on characters as tokens, that fail on demand.

No model, no network, no randomness: equal calls give equal answers. A ``Fault`` makes a fake raise, hang, answer in the
wrong shape, or (a judge) report a missing judgement, at the scenario, turn and seed it names and as often as it says;
every fake keeps a list of its ``calls``. Importing this loads no deep-learning framework. Not here: the demo world
(``dialrl.environment.demo``), which is a real task.

    policy = scripted_policy(["That sounds hard.", "What happened then?"])
    user = ScriptedEnvironment(["I slept badly.", "My brother called."], faults=[Fault("hang", turn=1, times=1)])
    judge = ScriptedJudge([{"A.Prog": 1}, {"C.Prog": 2}], faults=[Fault("missing", turn=0)])
"""

import asyncio
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from dialrl.engine.base import EngineCapabilities, Generation, GenerationRequest, SamplingSettings
from dialrl.environment.base import DialogueState, EnvironmentStep, PolicyReply
from dialrl.environment.simulator import read_line
from dialrl.errors import InputError
from dialrl.judge.base import Grade, TurnVerdict
from dialrl.scenario.card import Scenario
from dialrl.scenario.message import Message
from dialrl.state.rubric import load_rubric

if TYPE_CHECKING:
    from dialrl.engine.base import Engine
    from dialrl.environment.base import DialogueSession, Environment
    from dialrl.judge.base import Judge
    from dialrl.model.template import ChatTokenizer
    from dialrl.rollout.stage import Policy

FaultKind = Literal["raise", "hang", "malformed", "missing"]
Levels = Mapping[str, int]
LEVEL_OUT_OF_RANGE = 99
UNKNOWN_END_REASON = "no-such-reason"


class ScriptedFailureError(Exception):
    """What a fake raises on demand."""


@dataclass(frozen=True)
class Fault:
    """When a fake fails, and how. A condition that is None holds always; ``times`` None: every time.

    ``scenario``: the scenario's id (for an engine: the dialogue's); ``turn``: the policy turn from 0 (an opening line
    and an assessment are turn -1); ``seeds``: the seeds of the call, which tell samples and attempts apart.
    """

    kind: FaultKind
    scenario: str | None = None
    turn: int | None = None
    seeds: frozenset[int] | None = None
    times: int | None = None

    @classmethod
    def of(cls, fault: "Fault | Mapping[str, Any]") -> Self:
        """From plain values, as a configuration file holds them."""
        given = vars(fault) if isinstance(fault, Fault) else fault
        seeds = given.get("seeds")
        return cls(**{**given, "seeds": None if seeds is None else frozenset(seeds)})

    def meets(self, call: "Call") -> bool:
        return (
            self.scenario in (None, call.scenario)
            and self.turn in (None, call.turn)
            and (self.seeds is None or call.seed in self.seeds)
        )


@dataclass(frozen=True)
class Call:
    """One call of a fake: what was asked, of which scenario (or dialogue), at which turn, with which seed."""

    what: str
    scenario: str
    turn: int
    seed: int


@dataclass
class _Log:
    """The calls of a fake and the faults that are still to strike."""

    faults: list[Fault]
    calls: list[Call] = field(default_factory=list)

    @classmethod
    def of(cls, faults: Iterable[Fault | Mapping[str, Any]]) -> "_Log":
        return cls([Fault.of(fault) for fault in faults])

    def strike(self, call: Call) -> FaultKind | None:
        """Note ``call``; the kind of the first fault that it meets and that is not used up."""
        self.calls.append(call)
        for place, fault in enumerate(self.faults):
            if fault.meets(call) and fault.times != 0:
                left = None if fault.times is None else fault.times - 1
                self.faults[place] = Fault(fault.kind, fault.scenario, fault.turn, fault.seeds, left)
                return fault.kind
        return None

    async def suffer(self, call: Call) -> FaultKind | None:
        """``strike``; raises or never returns if that is the fault."""
        kind = self.strike(call)
        if kind == "raise":
            raise ScriptedFailureError(f"{call.what}, scenario '{call.scenario}', turn {call.turn}: as scripted")
        if kind == "hang":
            await asyncio.Event().wait()
        return kind


@dataclass(frozen=True)
class _AddedToken:
    content: str
    special: bool = True
    lstrip: bool = False


class CharacterTokenizer:
    """Every character is a token (100 + its code point); headers and ends of messages are special tokens.

    The template writes ``<|role|>`` + content + ``<|end|>`` + newline for each message, so a reply is its characters
    and ``<|end|>`` (id 1, the stop token).
    """

    SPECIAL = ("<|end|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>")
    eos_token_id = 1
    assistant_id = 4
    chat_template = "built in"

    def __init__(self) -> None:
        self._ids = {text: number for number, text in enumerate(self.SPECIAL, start=1)}
        self._texts = {number: text for text, number in self._ids.items()}
        self._pattern = re.compile("(" + "|".join(map(re.escape, self.SPECIAL)) + ")")
        self.added_tokens_decoder = {number: _AddedToken(text) for text, number in self._ids.items()}
        self.all_special_ids = list(self._texts)

    def apply_chat_template(self, conversation: Any, **options: Any) -> str:
        """The conversation as text; ids are made by ``encode`` alone."""
        if options.get("tokenize", True):
            raise InputError("CharacterTokenizer renders text only: call apply_chat_template with tokenize=False.")
        text = "".join(f"<|{message['role']}|>{message['content']}<|end|>\n" for message in conversation)
        return text + ("<|assistant|>" if options.get("add_generation_prompt") else "")

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        ids: list[int] = []
        for piece in self._pattern.split(text):
            ids += [self._ids[piece]] if piece in self._ids else [100 + ord(letter) for letter in piece]
        return ids

    def decode(self, token_ids: Any, *, skip_special_tokens: bool = False) -> str:
        shown = [token for token in token_ids if not (skip_special_tokens and token in self._texts)]
        return "".join(self._texts.get(token) or chr(token - 100) for token in shown)


class ScriptedEngine:
    """An engine whose replies are written down: ``replies[turn]``, from the start again when they run out, or a
    function of the request.

    Log-probs are ``logprob`` for every token. A malformed generation has one log-prob too few. ``schedule`` "stream"
    serves one request at a time; a hanging block engine sleeps for ``hang_seconds``, since nothing can cancel it.
    """

    def __init__(
        self,
        replies: Sequence[str] | Callable[[GenerationRequest], str],
        *,
        schedule: Literal["block", "stream"] = "block",
        faults: Iterable[Fault | Mapping[str, Any]] = (),
        logprob: float = -0.5,
        policy_digest: str = "sha256:scripted",
        hang_seconds: float = 3600.0,
    ) -> None:
        self.tokenizer = CharacterTokenizer()
        self.capabilities = EngineCapabilities(schedule, token_ids=True, logprobs=True, deterministic=True)
        self.policy_digest = policy_digest
        self._replies = replies
        self._logprob = logprob
        self._hang_seconds = hang_seconds
        self._log = _Log.of(faults)

    @property
    def calls(self) -> list[Call]:
        return self._log.calls

    def generate_block(self, requests: Sequence[GenerationRequest], sampling: SamplingSettings) -> list[Generation]:
        return [self._answer(request, sampling, self._strike_block(request)) for request in requests]

    async def generate(self, request: GenerationRequest, sampling: SamplingSettings) -> Generation:
        return self._answer(request, sampling, await self._log.suffer(self._call(request)))

    def load_weights(self, policy: Path) -> None:
        """Takes the name of the directory as its digest."""
        self.policy_digest = f"sha256:{policy.name}"

    def close(self) -> None:
        pass

    def _strike_block(self, request: GenerationRequest) -> FaultKind | None:
        kind = self._log.strike(self._call(request))
        if kind == "raise":
            raise ScriptedFailureError(f"generate, dialogue '{request.dialogue}': as scripted")
        if kind == "hang":
            time.sleep(self._hang_seconds)
        return kind

    def _call(self, request: GenerationRequest) -> Call:
        return Call("generate", request.dialogue, self._turn(request), request.seed)

    def _turn(self, request: GenerationRequest) -> int:
        """The turn asked for: one header of a reply stands in the context for every turn."""
        return list(request.prompt_ids).count(self.tokenizer.assistant_id) - 1

    def _answer(self, request: GenerationRequest, sampling: SamplingSettings, fault: FaultKind | None) -> Generation:
        limit = request.max_reply_tokens or sampling.max_reply_tokens
        ids = [*self.tokenizer.encode(self._text(request)), self.tokenizer.eos_token_id]
        finish: Literal["stop", "length"] = "stop" if len(ids) <= limit else "length"
        logprobs = [self._logprob] * min(len(ids), limit)
        if fault == "malformed":
            del logprobs[-1]
        return Generation(ids[:limit], logprobs, finish, prompt_tokens=len(request.prompt_ids))

    def _text(self, request: GenerationRequest) -> str:
        if callable(self._replies):
            return self._replies(request)
        return self._replies[self._turn(request) % len(self._replies)]


def scripted_policy(
    replies: Sequence[str] | Callable[[GenerationRequest], str], *, step: int = 0, **engine: Any
) -> "Policy":
    """A policy for ``dialrl.rollout.stage.roll_out`` that says ``replies``; ``engine``: options of ScriptedEngine."""
    from dialrl.model.template import ChatTemplate
    from dialrl.rollout.stage import Policy

    opened = ScriptedEngine(replies, **engine)
    return Policy(opened, ChatTemplate(opened.tokenizer), opened.policy_digest, step)


class ScriptedEnvironment:
    """A user whose lines are written down; after the last one the dialogue ends in a farewell with ``outcome``.

    ``lines[0]`` opens the dialogue and ``lines[k + 1]`` answers the reply of turn k. A line may hold the end marker of
    ``dialrl.environment.simulator``: what stands before it is said, and the dialogue ends. A malformed step ends the
    dialogue for a reason that does not exist. All arguments may be plain values of a configuration file.
    """

    name = "scripted"

    def __init__(
        self,
        lines: Sequence[str],
        *,
        scenarios: Sequence[str] = ("scenario-0", "scenario-1", "scenario-2"),
        outcome: float | None = 1.0,
        turn_limit: int = 20,
        accepts_silence: bool = False,
        faults: Iterable[Fault | Mapping[str, Any]] = (),
    ) -> None:
        if not lines:
            raise InputError("ScriptedEnvironment needs at least the opening line; got no lines.")
        self.lines = tuple(lines)
        self.outcome = outcome
        self.turn_limit = turn_limit
        self.accepts_silence = accepts_silence
        self._names = tuple(scenarios)
        self._log = _Log.of(faults)

    @property
    def calls(self) -> list[Call]:
        return self._log.calls

    def scenarios(self, split: str) -> Sequence[Scenario]:
        return [Scenario(name, split) for name in self._names]

    def find(self, scenario_id: str) -> Scenario:
        if scenario_id not in self._names:
            raise InputError(f"ScriptedEnvironment has no scenario '{scenario_id}'; it has {', '.join(self._names)}.")
        return Scenario(scenario_id, "train")

    def graded_outcome(self, end_reason: str, deficit: Sequence[float], position: Sequence[float]) -> float | None:
        """None: the last step brings the outcome."""
        return None

    def open(self, scenario: Scenario, seed: int) -> "ScriptedSession":
        return ScriptedSession(self, scenario, seed, self._log)


@dataclass(frozen=True)
class ScriptedSession:
    """One dialogue with a scripted user."""

    environment: ScriptedEnvironment
    scenario: Scenario
    seed: int
    log: _Log

    async def opening(self) -> EnvironmentStep:
        return await self._step("opening", -1)

    async def respond(self, reply: PolicyReply, state: DialogueState | None) -> EnvironmentStep:
        return await self._step("respond", reply.turn)

    async def _step(self, what: str, turn: int) -> EnvironmentStep:
        fault = await self.log.suffer(Call(what, self.scenario.scenario_id, turn, self.seed))
        if fault == "malformed":
            return EnvironmentStep((), UNKNOWN_END_REASON)
        lines = self.environment.lines
        if turn + 1 >= len(lines):
            return EnvironmentStep((), "farewell", self.environment.outcome)
        said = [Message("user", line) for line in lines[: turn + 1]]
        line = read_line(lines[turn + 1], said)
        message = Message("user", line.text)
        if line.ended:
            return EnvironmentStep((message,), "farewell", self.environment.outcome, line.flags)
        return EnvironmentStep((message,), flags=line.flags)


class ScriptedJudge:
    """A judge whose levels are written down: one mapping a turn (the last one for all later turns), or a function of
    the reply. An indicator that is not named has level 0.

    A malformed verdict holds a level out of range. ``rubric`` is a shipped rubric's name.
    """

    name = "scripted"

    def __init__(
        self,
        levels: Sequence[Levels] | Callable[[str], Levels] = ({},),
        *,
        deficit: Sequence[float] = (-6.0, -8.0, -4.0),
        rubric: str = "support",
        faults: Iterable[Fault | Mapping[str, Any]] = (),
    ) -> None:
        self.rubric = rubric
        self._levels = levels
        self._deficit = tuple(float(value) for value in deficit)
        self._indicators = load_rubric(rubric).indicator_names
        self._log = _Log.of(faults)

    @property
    def calls(self) -> list[Call]:
        return self._log.calls

    async def assess(self, scenario: Scenario, opening: Sequence[Message], seed: int) -> tuple[float, ...]:
        await self._log.suffer(Call("assess", scenario.scenario_id, -1, seed))
        return self._deficit

    async def grade(self, scenario: Scenario, dialogue: Sequence[Message], turn: int, seed: int) -> TurnVerdict:
        fault = await self._log.suffer(Call("grade", scenario.scenario_id, turn, seed))
        if fault == "missing":
            return TurnVerdict((), "missing", error="as scripted")
        reply = dialogue[-1].content
        levels = dict.fromkeys(self._indicators, 0) | dict(self._levels_at(turn, reply))
        if fault == "malformed":
            levels[self._indicators[0]] = LEVEL_OUT_OF_RANGE
        grades = [Grade(name, level, reply[:80] if level else None) for name, level in levels.items()]
        return TurnVerdict(tuple(grades), "ok")

    def _levels_at(self, turn: int, reply: str) -> Levels:
        if callable(self._levels):
            return self._levels(reply)
        return self._levels[min(turn, len(self._levels) - 1)]


if TYPE_CHECKING:  # the fakes are what the pipeline asks for; checked by the type checker
    _engine: type[Engine] = ScriptedEngine
    _environment: type[Environment] = ScriptedEnvironment
    _session: type[DialogueSession] = ScriptedSession
    _judge: type[Judge] = ScriptedJudge
    _tokenizer: type[ChatTokenizer] = CharacterTokenizer
