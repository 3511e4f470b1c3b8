"""Asks a policy the questions of a benchmark, each once: over an endpoint, or on an embedded engine block by block.

Every answer is kept as it comes (the journal of the calls; for an embedded engine one of its own), so that a killed
evaluation goes on and asks nothing twice. A question whose call fails for good has no answer, and says why. Not here:
prompts, and what an answer means.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dialrl.concurrency import run_async
from dialrl.endpoint.calls import calls_of, connect
from dialrl.endpoint.journal import Journal
from dialrl.engine.base import Generation, GenerationRequest, SamplingSettings
from dialrl.engine.serving.opening import serve_named
from dialrl.evaluate.asking_config import AskingConfig, text_options
from dialrl.evaluate.reply import Asked, Reply
from dialrl.model.reply import CLOSING, OPENING
from dialrl.progress import SILENT, Progress
from dialrl.rollout.policy import open_policy
from dialrl.rollout.sampler import StreamSampler, check_replies
from dialrl.rollout.stage import Policy
from dialrl.summary import StageSummary
from dialrl.trajectory.rows import storable

CALLS, ANSWERS = "calls.jsonl", "answers.jsonl"


class Respondent:
    """``policy`` asked with the settings of ``config``; ``folder`` is where answers are kept, None: in memory."""

    def __init__(self, policy: Policy, config: AskingConfig, folder: Path | None, progress: Progress = SILENT) -> None:
        self.policy, self.config, self.progress = policy, config, progress
        reached = config.updated(endpoints=config.reached)
        self.calls = calls_of(reached, None if folder is None else folder / CALLS)
        connect(self.calls, policy.engine)
        serve_named(config.reached, device=config.device)
        self._kept = Journal(None if folder is None else folder / ANSWERS)

    @property
    def called(self) -> dict[str, Any]:
        """What the calls came to, by role."""
        return self.calls.ledger.figures()

    def ask(self, questions: Sequence[Asked], *, temperature: float) -> list[Reply]:
        """One reply a question, in order. Raises HaltError when the engine or endpoint breaks, or the budget ends."""
        sampling = SamplingSettings(
            temperature=temperature, top_p=self.config.top_p, max_reply_tokens=self.config.max_reply_tokens
        )
        if self.policy.engine.capabilities.schedule == "block":
            return self._ask_in_blocks(questions, sampling)
        return run_async(self._ask_side_by_side(questions, sampling))

    async def _ask_side_by_side(self, questions: Sequence[Asked], sampling: SamplingSettings) -> list[Reply]:
        gate, sampler = asyncio.Semaphore(self.config.concurrency), StreamSampler(self.policy.engine, sampling)

        async def one(question: Asked) -> Reply:
            async with gate:
                drawn = await sampler.draw(0, self._request(question))
            self.progress.advance()
            return self._reply(drawn)

        async with self.calls:
            return await asyncio.gather(*map(one, questions))

    def _ask_in_blocks(self, questions: Sequence[Asked], sampling: SamplingSettings) -> list[Reply]:
        size = self.config.block_dialogues
        found: list[Reply] = []
        with self._kept:
            for start in range(0, len(questions), size):
                block = questions[start : start + size]
                found += self._block(block, sampling)
                self.progress.advance(len(block))
        return found

    def _block(self, block: Sequence[Asked], sampling: SamplingSettings) -> list[Reply]:
        """The replies of a block: kept ones, or all drawn together, since a block is drawn as one."""
        kept = [self._kept.get(question.key) for question in block]
        if all(entry is not None for entry in kept):
            return [Reply(**entry) for entry in kept if entry is not None]
        drawn = self.policy.engine.generate_block([self._request(question) for question in block], sampling)
        check_replies(drawn, self.policy.engine, requests=len(block))
        replies = [self._reply(one) for one in drawn]
        for question, reply in zip(block, replies, strict=True):
            self._kept.add(question.key, vars(reply))
        return replies

    def _request(self, question: Asked) -> GenerationRequest:
        template = self.policy.template
        ids = [] if template is None else template.encode(template.render(question.messages, generation_prompt=True))
        return GenerationRequest(ids, question.seed, question.key, messages=question.messages)

    def _reply(self, drawn: Generation) -> Reply:
        if drawn.finish_reason == "error":
            return Reply(None, "error", storable(drawn.error or "the engine gave no reason")[:500])
        template = self.policy.template
        if template is None:
            return Reply(storable(drawn.text or ""), drawn.finish_reason)
        decoded = template.decode_reply(drawn.reply_ids, drawn.finish_reason)
        text = decoded.reply if decoded.thinking is None else f"{OPENING}{decoded.thinking}{CLOSING}{decoded.reply}"
        return Reply(storable(text), drawn.finish_reason)


def open_respondent_policy(policy: str | Path, config: AskingConfig) -> Policy:
    """The policy that an evaluation asks: a directory, or the name of a model at an endpoint."""
    engine = config.engine or "hf"
    return open_policy(
        policy,
        engine=engine,
        device=config.device,
        engine_options=text_options(engine, config.engine_options),
        endpoints=config.reached,
        template_options=config.template_options,
    )


def with_asking(
    summary: StageSummary, config: AskingConfig, policy: str, called: Mapping[str, Any], settings: Mapping[str, Any]
) -> StageSummary:
    """``summary`` with who was asked (a digest) and how, and what the calls came to."""
    asked = {
        "engine": config.engine,
        "policy": policy,
        "top_p": config.top_p,
        "max_reply_tokens": config.max_reply_tokens,
        "sampling_seed": config.sampling_seed,
        **settings,
    }
    return replace(summary, figures={**summary.figures, "asked": asked, **({"calls": called} if called else {})})
