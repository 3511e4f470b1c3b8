"""One dialogue from opening line to end: ids, text, grades and reasons, as the rows of the trajectory file.

The policy's tokens come from a sampler and are stored as they came; the environment sees text only; under live grading
the judge speaks after each reply and its stop rules may end the dialogue. Whatever breaks, breaks this dialogue only:
the caller records it. Not here: which dialogues there are, engines, files.
"""

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from dialrl.engine.base import Generation, GenerationRequest
from dialrl.environment.base import (
    END_REASONS,
    TERMINATED_REASONS,
    TRUNCATED_REASONS,
    DialogueSession,
    DialogueState,
    Environment,
    EnvironmentStep,
    PolicyReply,
)
from dialrl.errors import RunError
from dialrl.judge.asking import ask, ask_deficit, missing
from dialrl.judge.base import Judge
from dialrl.judge.grading import FAILED_DIALOGUE, NO_REPLY, DialogueGrader, ungraded, with_stop_turn
from dialrl.model.context import DialogueContext, History, TurnPrompt
from dialrl.model.reply import DecodedReply
from dialrl.model.template import ChatTemplate
from dialrl.rollout.plan import DialoguePlan
from dialrl.rollout.sampler import Sampler
from dialrl.rollout.text_context import TextContext
from dialrl.scenario.message import Message, Usage
from dialrl.seeds import seed_for
from dialrl.state.rubric import Rubric
from dialrl.state.rules import StopRules
from dialrl.trajectory.rows import storable, unstorable

Row = dict[str, Any]
T = TypeVar("T")
STALLED_AFTER_EMPTY_REPLIES = 2


@dataclass(frozen=True)
class LiveGrading:
    """A judge in the loop. ``deficits``: P_0 by group, as first assessed; members of a group share it."""

    judge: Judge
    rubric: Rubric
    rules: StopRules
    deficits: dict[str, tuple[float, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Setting:
    """What all dialogues of a rollout share. ``template`` is None for an engine that takes and gives text."""

    environment: Environment
    template: ChatTemplate | None
    history: History
    max_turns: int
    run_seed: int
    iteration: int
    context_limit_tokens: int | None
    max_reply_tokens: int
    call_timeout_seconds: float
    policy_digest: str
    policy_step: int
    grading: LiveGrading | None = None


class CallTimeoutError(Exception):
    """The environment did not answer within its time limit."""


@dataclass
class DialogueRun:
    """Runs one dialogue; ``rows`` grow turn by turn and hold what there was when something broke."""

    plan: DialoguePlan
    setting: Setting
    sampler: Sampler
    attempt: int = 0
    rows: list[Row] = field(default_factory=list)
    _grader: DialogueGrader | None = field(default=None, init=False)

    async def run(self) -> list[Row]:
        """The rows of the finished dialogue. Raises whatever the environment or judge raises."""
        session = self.setting.environment.open(self.plan.group.scenario, self._seed(0, "user"))
        step = await self._timed(session.opening())
        self._context = self._new_context()
        self._dialogue: list[Message] = list(step.messages)
        self._grader = await self._open_grader(step.messages)
        prompt = self._context.open(step.messages)
        while self._room() > 0:
            row, reply = await self._turn(len(self.rows), step, prompt)
            step = await self._answer(session, row, reply)
            if step.end_reason is not None:
                return self._end(step)
            prompt = self._context.next(step.messages)
        return self._end(replace(step, end_reason="token_limit"))

    async def _turn(self, turn: int, step: EnvironmentStep, prompt: TurnPrompt) -> tuple[Row, PolicyReply]:
        seed = self._seed(turn, "policy")
        context, dialogue = self._context, self.plan.dialogue_id
        said = context.messages if isinstance(context, TextContext) else ()
        drawn = await self.sampler.draw(
            self.plan.order, GenerationRequest(context.context_ids, seed, dialogue, self._room(), said)
        )
        if drawn.finish_reason == "error":
            raise RunError(f"the engine could not answer this request (finish_reason 'error'): {drawn.error}")
        decoded = self._decoded(drawn)
        self._context.add_reply(drawn.reply_ids, decoded.text, drawn.finish_reason)
        row = self._row(turn, step, prompt, drawn, seed)
        flags = [*step.flags, *self._spoofs(step.messages), *decoded.flags]
        row.update(reply=decoded.reply, thinking=decoded.thinking, flags=flags)
        self.rows.append(row)
        self._dialogue += [*(step.messages if turn else ()), Message("assistant", decoded.reply)]
        return row, PolicyReply(decoded.reply, drawn.finish_reason, turn)

    def _new_context(self) -> "DialogueContext | TextContext":
        template = self.setting.template
        return TextContext() if template is None else DialogueContext(template, self.setting.history)

    def _decoded(self, drawn: Generation) -> DecodedReply:
        if self.setting.template is None:
            text = drawn.text or ""
            return DecodedReply(text, text, None, ())
        return self.setting.template.decode_reply(drawn.reply_ids, drawn.finish_reason)

    def _spoofs(self, messages: Sequence[Message]) -> list[str]:
        """A flag when someone else's text spells out the template's control tokens, which the tokenizer obeys."""
        template = self.setting.template
        spelled = template is not None and any(template.special_texts_in(message.content) for message in messages)
        return ["control_tokens"] if spelled else []

    def _row(self, turn: int, step: EnvironmentStep, prompt: TurnPrompt, drawn: Generation, seed: int) -> Row:
        completion = drawn.completion_tokens or len(drawn.reply_ids)
        usage = Usage("policy", drawn.prompt_tokens, drawn.cached_tokens, completion)
        has_ids = drawn.text is None
        return {
            **self.keys(turn),
            "messages": [message.to_row() for message in step.messages],
            "segment": prompt.segment,
            "prompt_ids": prompt.new_ids if has_ids else None,
            "reply_ids": drawn.reply_ids if has_ids else None,
            "reply_logprobs": drawn.logprobs,
            "finish_reason": drawn.finish_reason,
            "director": None if step.director is None else vars(step.director),
            "usage": [vars(usage), *map(vars, step.usage)],
            "seed": seed,
            "status": "ok",
        }

    def keys(self, turn: int) -> Row:
        """Key and provenance columns of a row."""
        group = self.plan.group
        return {
            "group_id": group.group_id,
            "sample": self.plan.sample,
            "turn": turn,
            "dialogue_id": self.plan.dialogue_id,
            "scenario_id": group.scenario.scenario_id,
            "environment": self.setting.environment.name,
            "policy_digest": self.setting.policy_digest,
            "policy_step": self.setting.policy_step,
        }

    async def _answer(self, session: DialogueSession, row: Row, reply: PolicyReply) -> EnvironmentStep:
        state = await self._grade(row, reply)
        if state is not None and state.stop is not None:
            return EnvironmentStep((), state.stop)
        if self._is_stalled():
            return EnvironmentStep((), "stalled")
        try:
            step = await self._timed(session.respond(reply, state))
        except CallTimeoutError:
            return EnvironmentStep((), "timeout")
        if step.end_reason is not None and step.end_reason not in END_REASONS:
            raise RunError(
                f"Environment '{self.setting.environment.name}' ended a dialogue with '{step.end_reason}'; known:"
                f" {', '.join(END_REASONS)}."
            )
        if step.end_reason is None and reply.turn + 1 >= self.setting.max_turns:
            return replace(step, end_reason="turn_limit")
        return step

    def _is_stalled(self) -> bool:
        last = [row["reply"] for row in self.rows[-STALLED_AFTER_EMPTY_REPLIES:]]
        return (
            not self.setting.environment.accepts_silence
            and len(last) == STALLED_AFTER_EMPTY_REPLIES
            and not any(text.strip() for text in last)
        )

    async def _open_grader(self, opening: Sequence[Message]) -> DialogueGrader | None:
        live = self.setting.grading
        if live is None:
            return None
        group = self.plan.group
        if group.group_id not in live.deficits:
            # One assessment a group: the seed names the group, not the dialogue. A further try of the dialogue is one
            # of the assessment that failed, too: its answer stands in the journal.
            place = (self.setting.run_seed, self.setting.iteration, group.group_id)
            seed = seed_for(*place, 0, 0, "assess", self.attempt)
            call = live.judge.assess(group.scenario, opening, seed)
            assessed = await ask_deficit(call, live.rubric, timeout_seconds=self.setting.call_timeout_seconds)
            if assessed.deficit is None:
                raise RunError(f"the judge gave no initial deficit, without which nothing is graded: {assessed.error}")
            live.deficits.setdefault(group.group_id, assessed.deficit)
        return DialogueGrader(live.rubric, live.deficits[group.group_id], live.rules)

    async def _grade(self, row: Row, reply: PolicyReply) -> DialogueState | None:
        live = self.setting.grading
        if live is None or self._grader is None:
            return None
        plan, setting = self.plan, self.setting
        # No attempt in it: grading the file afterwards asks with the same seed.
        seed = seed_for(setting.run_seed, setting.iteration, plan.group.group_id, plan.sample, reply.turn, "judge")
        call = live.judge.grade(self.plan.group.scenario, self._dialogue, reply.turn, seed)
        verdict = await ask(call, live.rubric, timeout_seconds=setting.call_timeout_seconds)
        row.update(self._grader.add(verdict, turn=reply.turn))
        row["usage"] = [*row["usage"], *map(vars, verdict.usage)]
        grader = self._grader
        return DialogueState(
            grader.deficit, grader.position, grader.stop_reason, live.rubric.axis_names, grader.success_holds
        )

    def _end(self, step: EnvironmentStep) -> list[Row]:
        reason = step.end_reason
        if not self.rows:
            self.rows.append(self._row_without_reply())
        last = self.rows[-1]
        last.update(
            end_reason=reason,
            terminated=reason in TERMINATED_REASONS,
            truncated=reason in TRUNCATED_REASONS,
            outcome=step.outcome,
            final_messages=[message.to_row() for message in step.messages],
            final_ids=self._final_ids(step),
        )
        reencoded = ["reencoded_history"] if self._context.reencoded_replies else []
        last["flags"] = [*(last.get("flags") or ()), *step.flags, *reencoded]
        last["usage"] = [*(last.get("usage") or ()), *map(vars, step.usage)]
        if self._grader is not None:
            with_stop_turn(self.rows, self._grader.stop_turn)
            last["outcome"] = self._grader.outcome(self.setting.environment, reason, step.outcome)
        return self.rows

    def _row_without_reply(self) -> Row:
        """The row of a dialogue whose opening left the policy no room."""
        row = {**self.keys(0), "status": "ok", "reply": None}
        return row if self._grader is None else {**row, **self._grader.add(missing(NO_REPLY), turn=0)}

    def broken_rows(self) -> list[Row]:
        """The turns there were, as far as a file can hold them, or one empty row; ungraded under live grading."""
        rows = self.rows if unstorable(self.rows) is None else []
        rows = rows or [{**self.keys(0), "reply": None}]
        if self.setting.grading is not None:
            deficit = None if self._grader is None else self._grader.deficit
            for row in rows:
                row.update(ungraded(deficit, FAILED_DIALOGUE))
        return rows

    def _final_ids(self, step: EnvironmentStep) -> list[int]:
        """Ids of the last messages; under ``token_limit`` the context holds them already: the prompt never answered."""
        if step.end_reason == "token_limit" or not self.rows[-1].get("reply_ids"):
            return []
        return self._context.final(step.messages)

    def _room(self) -> int:
        """Tokens a reply may have."""
        limit = self.setting.context_limit_tokens
        room = self.setting.max_reply_tokens if limit is None else limit - len(self._context.context_ids)
        return min(self.setting.max_reply_tokens, room)

    def _seed(self, turn: int, role: str) -> int:
        plan, setting = self.plan, self.setting
        return seed_for(setting.run_seed, setting.iteration, plan.group.group_id, plan.sample, turn, role, self.attempt)

    async def _timed(self, call: Awaitable[T]) -> T:
        try:
            return await asyncio.wait_for(call, self.setting.call_timeout_seconds)
        except TimeoutError:
            raise CallTimeoutError from None


def failed_rows(run: DialogueRun, error: Exception) -> list[Row]:
    """A broken dialogue as data: its turns so far, or one empty row, all with status ``error``."""
    rows = run.broken_rows()
    for row in rows:
        row["status"] = "error"
    rows[-1].update(
        error=storable(f"{type(error).__name__}: {error}")[:500],
        end_reason="error",
        terminated=False,
        truncated=False,
        outcome=None,
    )
    return rows
