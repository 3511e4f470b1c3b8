"""Whether a rollout keeps endpoints full, and what a request costs the client.

    python benchmarks/endpoint_rollout.py [--dialogues 256] [--turns 8] [--slots 64] [--latency-ms 500] [-o FILE.json]

A server with a fixed latency takes as many requests as come; the client may have ``--slots`` in flight for the policy
(the person's lines come from a script, so the policy is all there is to wait for). ``busy_share``: the slots' time that
was used while at least as many dialogues as slots were unfinished, against all of it; 1 is the limit. ``ideal_seconds``
is requests x latency / slots. The server runs in a process of its own, so that the CPU counted is the client's.
"""

import argparse
import asyncio
import json
import multiprocessing
import platform
import resource
import tempfile
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from result_file import show

from dialrl import plugins
from dialrl.endpoint.settings import EndpointSettings, ModelSettings
from dialrl.engine.openai import OpenAIEngine
from dialrl.rollout.config import RolloutConfig
from dialrl.rollout.stage import Policy, roll_out
from dialrl.testing import ScriptedEnvironment

TARGET_SHARE = 0.9
ANSWER = {
    "choices": [{"message": {"content": "I see."}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 100, "completion_tokens": 3},
}


def serve(latency_seconds: float, pipe: Connection) -> None:
    """A server that notes when each request came and went; its port and, at the end, the notes go through ``pipe``."""
    spans: list[tuple[float, float]] = []
    content = json.dumps(ANSWER).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n".encode()

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            try:
                header = await reader.readuntil(b"\r\n\r\n")
            except (asyncio.IncompleteReadError, ConnectionError):
                return
            length = next(
                int(x.split(b":")[1]) for x in header.lower().split(b"\r\n") if x.startswith(b"content-length")
            )
            await reader.readexactly(length)
            came = time.monotonic()
            await asyncio.sleep(latency_seconds)
            writer.write(head + content)
            spans.append((came, time.monotonic()))

    async def run() -> None:
        server = await asyncio.start_server(connection, "127.0.0.1", 0)
        pipe.send(server.sockets[0].getsockname()[1])
        while not pipe.poll():
            await asyncio.sleep(0.05)
        pipe.send(spans)

    asyncio.run(run())


def busy_share(spans: Sequence[tuple[float, float]], slots: int, turns: int) -> float:
    """Used share of the slots' time from the first request to the last moment with ``slots`` dialogues unfinished.

    Every dialogue asks ``turns`` times and dialogues start in order, so that moment is bounded from below by the
    request after which fewer than slots x turns were still to come.
    """
    ordered = sorted(spans)
    start = ordered[0][0]
    end = ordered[len(ordered) - slots * turns][0]
    used = sum(min(went, end) - came for came, went in ordered if came < end)
    return used / (slots * (end - start))


def measure(dialogues: int, turns: int, slots: int, latency_seconds: float) -> dict[str, Any]:
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(latency_seconds, theirs))
    process.start()
    port = ours.recv()
    environment = ScriptedEnvironment(["Hello."] * (turns + 1), scenarios=[f"s{n}" for n in range(dialogues // 4)])
    plugins.load = lambda kind, built_in=(): {"scripted": lambda **options: environment}  # type: ignore[assignment]
    endpoint = EndpointSettings(base_urls=[f"http://127.0.0.1:{port}/v1"], concurrency=slots)
    config = RolloutConfig(
        environment="scripted", groups=dialogues // 4, samples=4, max_turns=turns, endpoints={"policy": endpoint}
    )
    engine = OpenAIEngine(ModelSettings(model="m"), "chat", "endpoint:m")
    cpu, began = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        roll_out(Policy(engine, None, engine.policy_digest), Path(folder) / "rollout.parquet", config)
    seconds, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_SELF)
    ours.send("done")
    spans = ours.recv()
    process.join()
    used = after.ru_utime + after.ru_stime - cpu.ru_utime - cpu.ru_stime
    return {
        "requests": len(spans),
        "seconds": round(seconds, 2),
        "ideal_seconds": round(len(spans) * latency_seconds / slots, 2),
        "busy_share": round(busy_share(spans, slots, turns), 4),
        "client_cpu_ms_a_request": round(1000 * used / len(spans), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--dialogues", type=int, default=256)
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--slots", type=int, default=64)
    parser.add_argument("--latency-ms", type=float, default=500)
    parser.add_argument("-o", "--output", type=Path)
    asked = parser.parse_args()
    figures = measure(asked.dialogues, asked.turns, asked.slots, asked.latency_ms / 1000)
    settings = {name: value for name, value in vars(asked).items() if name != "output"}
    result = {
        "benchmark": "endpoint_rollout",
        "settings": settings,
        "python": platform.python_version(),
        **figures,
        "target_busy_share": TARGET_SHARE,
        "met": figures["busy_share"] >= TARGET_SHARE,
    }
    show(result, asked.output)


if __name__ == "__main__":
    main()
