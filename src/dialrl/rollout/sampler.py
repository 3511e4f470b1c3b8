"""Between dialogues and the engine: dialogues ask for one reply each, the engine is asked as it likes to be asked.

A block engine gets the requests of all unfinished dialogues of a block together, once every one of them waits: so the
batch is decided by the dialogues, never by timing. A stream engine gets each request at once. Not here: dialogues.
"""

import asyncio
import math
from collections.abc import Sequence
from typing import Protocol

from dialrl.engine.base import Engine, Generation, GenerationRequest, SamplingSettings
from dialrl.errors import EngineError, HaltError


class Sampler(Protocol):
    """Draws replies for the dialogues of a block."""

    async def draw(self, order: int, request: GenerationRequest) -> Generation:
        """One reply for the dialogue at place ``order``."""

    def leave(self) -> None:
        """A dialogue has ended and asks no more."""


def sampler_for(engine: Engine, sampling: SamplingSettings, dialogues: int) -> Sampler:
    """The sampler that fits the engine, for a block of ``dialogues``."""
    if engine.capabilities.schedule == "block":
        return BlockSampler(engine, sampling, dialogues)
    return StreamSampler(engine, sampling)


class StreamSampler:
    """Passes every request on at once. Raises EngineError for whatever the engine raises."""

    def __init__(self, engine: Engine, sampling: SamplingSettings) -> None:
        self._engine, self._sampling = engine, sampling

    async def draw(self, order: int, request: GenerationRequest) -> Generation:
        try:
            reply = await self._engine.generate(request, self._sampling)
        except HaltError:
            raise
        except Exception as error:
            raise _failure(error, 1) from error
        check_replies([reply], self._engine, requests=1)
        return reply

    def leave(self) -> None:
        pass


class BlockSampler:
    """Waits until every unfinished dialogue of the block asks, then asks the engine once, in order of place."""

    def __init__(self, engine: Engine, sampling: SamplingSettings, dialogues: int) -> None:
        self._engine, self._sampling = engine, sampling
        self._unfinished = dialogues
        self._waiting: dict[int, tuple[GenerationRequest, asyncio.Future[Generation]]] = {}

    async def draw(self, order: int, request: GenerationRequest) -> Generation:
        future: asyncio.Future[Generation] = asyncio.get_running_loop().create_future()
        self._waiting[order] = (request, future)
        self._work_if_all_wait()
        return await future

    def leave(self) -> None:
        self._unfinished -= 1
        self._work_if_all_wait()

    def _work_if_all_wait(self) -> None:
        # A dialogue that was cancelled waits no more; without this an interrupted block would be worked on once more.
        self._waiting = {order: entry for order, entry in self._waiting.items() if not entry[1].done()}
        if not self._waiting or len(self._waiting) < self._unfinished:
            return
        waiting = [self._waiting[order] for order in sorted(self._waiting)]
        self._waiting = {}
        try:
            replies = self._engine.generate_block([request for request, _ in waiting], self._sampling)
            check_replies(replies, self._engine, requests=len(waiting))
        except Exception as error:  # noqa: BLE001 - whatever an engine raises, every waiting dialogue must hear of it
            failure = _failure(error, len(waiting))
            failure.__cause__ = error
            for _, future in waiting:
                future.set_exception(failure)
            return
        for (_, future), reply in zip(waiting, replies, strict=True):
            future.set_result(reply)


def check_replies(replies: Sequence[Generation], engine: Engine, *, requests: int) -> None:
    """Raise EngineError unless there is one reply a request, with log-probs if the engine says so (field case 28)."""
    if len(replies) != requests:
        raise EngineError(f"The engine gave {len(replies)} replies to {requests} requests; expected one each.")
    for reply in replies:
        if (reply.logprobs is not None) != engine.capabilities.logprobs and reply.finish_reason != "error":
            has, gives = ("no ", "them") if engine.capabilities.logprobs else ("", "none")
            raise EngineError(f"A reply has {has}log-probs, but the engine says it gives {gives}: all replies or none.")
        if reply.logprobs is not None and not all(map(math.isfinite, reply.logprobs)):
            raise EngineError("A reply has a log-prob that is no finite number; what was sampled has a probability.")


def _failure(error: Exception, requests: int) -> EngineError:
    if isinstance(error, EngineError):
        return error
    return EngineError(f"The engine failed on {requests} requests: {type(error).__name__}: {error}")
