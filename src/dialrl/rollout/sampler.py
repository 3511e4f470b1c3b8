"""Between dialogues and the engine: dialogues ask for one reply each, the engine is asked as it likes to be asked.

A block engine gets the requests of all unfinished dialogues of a block together, once every one of them waits: so the
batch is decided by the dialogues, never by timing. A stream engine gets each request at once. Not here: dialogues.
"""

import asyncio
from typing import Protocol

from dialrl.engine.base import Engine, Generation, GenerationRequest, SamplingSettings
from dialrl.errors import EngineError


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
    """Passes every request on at once."""

    def __init__(self, engine: Engine, sampling: SamplingSettings) -> None:
        self._engine, self._sampling = engine, sampling

    async def draw(self, order: int, request: GenerationRequest) -> Generation:
        return await self._engine.generate(request, self._sampling)

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
        if not self._waiting or len(self._waiting) < self._unfinished:
            return
        waiting = [self._waiting[order] for order in sorted(self._waiting)]
        self._waiting = {}
        try:
            replies = self._engine.generate_block([request for request, _ in waiting], self._sampling)
        except Exception as error:  # noqa: BLE001 - whatever an engine raises, every waiting dialogue must hear of it
            failure = EngineError(f"The engine failed on a block of {len(waiting)}: {type(error).__name__}: {error}")
            failure.__cause__ = error
            for _, future in waiting:
                future.set_exception(failure)
            return
        for (_, future), reply in zip(waiting, replies, strict=True):
            future.set_result(reply)
