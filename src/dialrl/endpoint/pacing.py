"""Holds calls back: so many in flight, so many a minute, so many tokens a minute."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dialrl.endpoint.settings import EndpointSettings


class Pacing:
    """The limits of one endpoint, within one event loop."""

    def __init__(self, settings: EndpointSettings) -> None:
        self._slots = asyncio.Semaphore(settings.concurrency)
        self._seconds_per_request = 60.0 / settings.requests_per_minute if settings.requests_per_minute else 0.0
        self._seconds_per_token = 60.0 / settings.tokens_per_minute if settings.tokens_per_minute else 0.0
        self._free_at = 0.0

    @asynccontextmanager
    async def slot(self, tokens: int) -> AsyncIterator[None]:
        """A place for one try that may use ``tokens``."""
        async with self._slots:
            await asyncio.sleep(self._delay(tokens))
            yield

    def _delay(self, tokens: int) -> float:
        """Seconds until this try may start; reserves its share of the minute."""
        now = time.monotonic()
        start = max(now, self._free_at)
        self._free_at = start + max(self._seconds_per_request, tokens * self._seconds_per_token)
        return start - now
