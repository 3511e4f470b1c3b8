"""One request over HTTP: tries, waits, timeouts, several addresses. Knows nothing of roles, journals or budgets.

Tried again: 408, 409, 425, 429, 5xx, timeouts, connections that break, bodies that are no JSON. A whole try is bounded
in time, so an answer that drips in byte by byte is a timeout too. Waits double, with jitter; ``Retry-After`` is kept.
"""

import asyncio
import hashlib
import json
import random
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from types import ModuleType
from typing import TYPE_CHECKING, Any

from dialrl.endpoint.failure import EndpointError, ModelCallError, redacted
from dialrl.endpoint.pacing import Pacing
from dialrl.endpoint.settings import EndpointSettings
from dialrl.errors import missing_extra

if TYPE_CHECKING:
    import httpx2

_RETRIED_STATUSES = frozenset({408, 409, 425, 429})
_HOPELESS_STATUSES = {401: "refuses the key", 403: "refuses access", 404: "does not know the model or path"}


@dataclass(frozen=True)
class _Failure:
    """A try that gave no answer."""

    reason: str
    detail: str
    retry_after_seconds: float | None = None
    is_final: bool = False


def http_library() -> ModuleType:
    """The HTTP client. Raises MissingExtraError naming the extra."""
    try:
        import httpx2
    except ModuleNotFoundError as error:
        raise missing_extra("openai", error.name or "httpx2") from error
    return httpx2


class Transport:
    """Requests to one endpoint, within one event loop. ``on_try`` hears of every request that is sent."""

    def __init__(self, settings: EndpointSettings, on_try: Callable[[], None] = lambda: None) -> None:
        self._settings = settings
        self._addresses = settings.addresses
        self._pacing = Pacing(settings)
        self._on_try = on_try
        self._http = http_library()
        self._certificates = ssl.create_default_context()
        self._idle: list[httpx2.AsyncClient] = []
        self._clients: list[httpx2.AsyncClient] = []

    @property
    def _headers(self) -> dict[str, str]:
        key = self._settings.key
        return {"Authorization": f"Bearer {key}"} if key else {}

    async def close(self) -> None:
        for client in self._clients:
            await client.aclose()

    @contextmanager
    def _client(self) -> "Iterator[httpx2.AsyncClient]":
        """A client of one connection, for one try.

        One client of many connections looks at each of them for every request, which at 64 costs half of the client's
        time.
        """
        client = self._idle.pop() if self._idle else self._new_client()
        try:
            yield client
        finally:
            self._idle.append(client)

    def _new_client(self) -> "httpx2.AsyncClient":
        client: httpx2.AsyncClient = self._http.AsyncClient(
            limits=self._http.Limits(max_connections=1, max_keepalive_connections=1),
            timeout=self._http.Timeout(self._settings.timeout_seconds),
            headers=self._headers,
            verify=self._certificates,
        )
        self._clients.append(client)
        return client

    async def post(self, path: str, body: Mapping[str, Any], *, tokens: int, route: str = "") -> dict[str, Any]:
        """The JSON object that answers ``body``. Requests of one ``route`` go to one address, while it works.

        Raises ModelCallError when every try failed, EndpointError when no call can succeed there.
        """
        first = _place(route, len(self._addresses))
        failure = _Failure("not_tried", "")
        for attempt in range(self._settings.attempts):
            if attempt:
                await asyncio.sleep(self._wait(attempt, failure))
            url = self._addresses[(first + attempt) % len(self._addresses)] + path
            async with self._pacing.slot(tokens):
                answer = await self._try(url, body)
            if not isinstance(answer, _Failure):
                return answer
            failure = answer
            if failure.is_final:
                break
        if failure.reason == "unreachable":
            raise EndpointError(f"Nobody answers at {', '.join(self._addresses)}: {failure.detail}. Start the server.")
        raise ModelCallError(failure.reason, redacted(failure.detail, self._settings.key))

    def _wait(self, attempt: int, failure: _Failure) -> float:
        """Seconds before the next try: as the server asks, else a doubling wait with full jitter."""
        most = min(self._settings.longest_wait_seconds, self._settings.backoff_seconds * 2.0 ** (attempt - 1))
        jittered = random.uniform(0.5, 1.0) * most
        asked = failure.retry_after_seconds or 0.0
        return min(max(jittered, asked), self._settings.longest_wait_seconds)

    async def _try(self, url: str, body: Mapping[str, Any]) -> dict[str, Any] | _Failure:
        self._on_try()
        seconds = self._settings.timeout_seconds
        try:
            content = json.dumps(body, ensure_ascii=True)
            headers = {"Content-Type": "application/json"}
            with self._client() as client:
                response = await asyncio.wait_for(client.post(url, content=content, headers=headers), seconds)
        except (TimeoutError, self._http.TimeoutException):
            return _Failure("timeout", f"no whole answer within {seconds:g} s")
        except self._http.ConnectError as error:
            return _Failure("unreachable", str(error))
        except self._http.TransportError as error:
            return _Failure("connection", f"{type(error).__name__}: {error}")
        return self._read(url, response)

    def _read(self, url: str, response: "httpx2.Response") -> dict[str, Any] | _Failure:
        status = response.status_code
        if status in _HOPELESS_STATUSES:
            detail = redacted(response.text[:200], self._settings.key)
            raise EndpointError(
                f"{url} {_HOPELESS_STATUSES[status]} (status {status}): {detail}. Check the model's name, base_urls,"
                f" and the variable {self._settings.api_key_env}."
            )
        if status != 200:
            is_final = status not in _RETRIED_STATUSES and status < 500
            wait = _retry_after(response.headers.get("retry-after"))
            return _Failure(f"http_{status}", response.text[:200], wait, is_final)
        try:
            answer = json.loads(response.content)
        except ValueError:
            return _Failure("bad_response", "the body is no whole JSON")
        if not isinstance(answer, dict):
            return _Failure("bad_response", f"the body is a JSON {type(answer).__name__}; expected an object")
        return answer


def _place(route: str, count: int) -> int:
    return (
        int.from_bytes(hashlib.blake2b(route.encode("utf-8", "surrogatepass"), digest_size=4).digest(), "big") % count
    )


def _retry_after(value: str | None) -> float | None:
    """Seconds of a Retry-After header, which holds seconds or a date."""
    if value is None:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return None
