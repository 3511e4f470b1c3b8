"""An OpenAI-compatible server on the loopback interface that fails as it is told, and counts. Not a test module.

``with ModelServer(answer, faults=...) as server: ... server.url``. ``answer(body)`` gives the content of a chat answer
(a text, or a whole message as a dict); ``faults`` maps the number of a request (from 0) to the kind of fault, or is a
function of number and body. It runs in a thread of its own, so it outlives a killed client.
"""

import asyncio
import json
import random
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

Body = dict[str, Any]
Faults = Mapping[int, str] | Callable[[int, Body], str | None]
KINDS = ("429", "500", "hang", "cut", "truncated_json", "empty", "wrong_schema", "drip")
"""Faults of the wire and of the answer; ``cut_content`` (finish_reason length) is known too."""


def at_random(share: float, seed: int, kinds: tuple[str, ...] = KINDS) -> Callable[[int, Body], str | None]:
    """A fault of any of ``kinds`` at a share of the requests, the same for the same seed and order."""
    draws = random.Random(seed)
    return lambda number, body: draws.choice(kinds) if draws.random() < share else None


@dataclass
class ModelServer:
    """``requests`` holds every body in order of arrival; ``answered`` those whose whole answer was sent."""

    answer: Callable[[Body], Any]
    faults: Faults = field(default_factory=dict)
    latency_seconds: float = 0.0
    retry_after: str | None = None
    requests: list[Body] = field(default_factory=list)
    answered: list[Body] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    injected: list[str] = field(default_factory=list)
    in_flight: int = 0
    most_in_flight: int = 0

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(
            asyncio.start_server(self._connection, "127.0.0.1", 0, limit=2**24), self._loop
        ).result()
        port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}/v1"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        async def stop() -> None:
            self._server.close()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._request(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; False when the connection is done with."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in head[1:] if line)}
        body = json.loads(await reader.readexactly(int(headers.get("content-length", 0))) or b"{}")
        number = len(self.requests)
        self.requests.append(body)
        self.headers.append(headers)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            return await self._respond(number, head[0].split(" ")[1], body, writer)
        finally:
            self.in_flight -= 1

    async def _respond(self, number: int, path: str, body: Body, writer: asyncio.StreamWriter) -> bool:
        fault = self.faults(number, body) if callable(self.faults) else self.faults.get(number)
        if fault is not None:
            self.injected.append(fault)
        await asyncio.sleep(self.latency_seconds)
        if fault == "hang":
            await asyncio.sleep(3600)
        if fault == "cut":
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n{")
            await writer.drain()
            return False
        if fault in ("400", "401", "404", "429", "500", "503"):
            retry = f"Retry-After: {self.retry_after}\r\n" if self.retry_after is not None else ""
            await self._send(writer, fault, b'{"error": {"message": "as told"}}', retry)
            return True
        content = json.dumps(self._content(path, body, fault)).encode()
        if fault == "truncated_json":
            content = content[: len(content) // 2]
        if fault == "drip":
            await self._drip(writer, content)
            return False
        await self._send(writer, "200", content)
        self.answered.append(body)
        return True

    async def _send(self, writer: asyncio.StreamWriter, status: str, content: bytes, more: str = "") -> None:
        head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n{more}\r\n"
        writer.write(head.encode() + content)
        await writer.drain()

    async def _drip(self, writer: asyncio.StreamWriter, content: bytes) -> None:
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(content)}\r\n\r\n".encode())
        for place in range(len(content)):
            writer.write(content[place : place + 1])
            await writer.drain()
            await asyncio.sleep(0.05)

    def _content(self, path: str, body: Body, fault: str | None) -> Body:
        if not path.endswith("/chat/completions"):
            given: Body = self.answer(body)
            return given
        message = self.answer(body)
        message = {"role": "assistant", "content": message} if isinstance(message, str) else message
        finish = "stop"
        if fault == "empty":
            message = {"role": "assistant", "content": "", "reasoning_content": "I think, therefore I say nothing."}
        if fault == "wrong_schema":
            message = {"role": "assistant", "content": '{"verdict": "good"}'}
        if fault == "cut_content":
            message, finish = {**message, "content": message["content"][:20]}, "length"
        usage = {"prompt_tokens": 100, "completion_tokens": 10, "prompt_tokens_details": {"cached_tokens": 40}}
        return {"choices": [{"index": 0, "message": message, "finish_reason": finish}], "usage": usage}
