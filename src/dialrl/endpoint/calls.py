"""``ModelCalls``: every external call of one stage goes through here, once.

A call is looked up in the journal, else sent (paced, retried), written to the journal, booked, and only then handed
on; equal calls in flight share one request. Use it as an asynchronous context: connections belong to one event loop,
journal and ledger to the whole stage. Parts that need models implement ``UsesModels``. Not here: prompts.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, runtime_checkable

from dialrl.endpoint.cache import CallCache, default_cache_folder
from dialrl.endpoint.failure import ModelCallError
from dialrl.endpoint.journal import Journal, call_key
from dialrl.endpoint.ledger import Ledger, estimated_usage, usage_of
from dialrl.endpoint.settings import Budget, CallsConfig, EndpointSettings, endpoint_for
from dialrl.endpoint.transport import Transport
from dialrl.errors import HaltError, RunError, UsageError

Answer = dict[str, Any]


@dataclass
class _Flight:
    """A request on its way, and how many wait for it."""

    task: "asyncio.Task[Answer]"
    waiters: int = 0


@dataclass
class ModelCalls:
    """``endpoints`` by role; ``journal_path`` beside the output; ``cache`` for judges, shared between runs."""

    endpoints: Mapping[str, EndpointSettings] = field(default_factory=dict)
    journal_path: Path | None = None
    budget: Budget = field(default_factory=Budget)
    cache: CallCache | None = None

    def __post_init__(self) -> None:
        self.journal = Journal(self.journal_path)
        self.ledger = Ledger(self.budget)
        self._booked: set[str] = set()
        self._transports: dict[str, Transport] = {}
        self._flights: dict[str, _Flight] = {}
        self._is_open = False
        self._ending: HaltError | None = None

    def reach(self, role: str, endpoint: EndpointSettings) -> None:
        """From now on ``role``'s model is at ``endpoint``: for a part that runs a server of its own."""
        self.endpoints = {**self.endpoints, role: endpoint}

    async def __aenter__(self) -> Self:
        self._is_open, self._ending = True, None
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """After a HaltError the requests in flight are awaited and journalled: they are paid for already.

        Dialogues beside the one that raised it are still running; whatever they ask from now on gets that error too.
        """
        if isinstance(error, HaltError):
            self._ending = error
            await asyncio.gather(*(flight.task for flight in self._flights.values()), return_exceptions=True)
        for flight in list(self._flights.values()):
            flight.task.cancel()
        for transport in self._transports.values():
            await transport.close()
        self._transports, self._flights, self._is_open = {}, {}, False
        self.journal.close()

    async def post(
        self, role: str, path: str, body: Mapping[str, Any], *, seed: int, attempt: int = 0, limit: int, route: str = ""
    ) -> Answer:
        """The JSON object that answers ``body``; ``limit``: most tokens of the answer.

        Raises ModelCallError when the call has failed, BudgetError or EndpointError when the stage must end.
        """
        if not self._is_open:
            raise RunError("A language model was asked outside of 'async with ModelCalls(...)'. Open it first.")
        key = call_key(role, body, seed, attempt)
        held = self.journal.get(key)
        if held is not None:
            self._book_replayed(role, key, body, held, limit)
            return _answer_of(held)
        if self._ending is not None:
            raise self._ending
        return await self._shared(key, lambda: self._send(role, path, body, key, limit, route))

    def adopt(
        self, role: str, body: Mapping[str, Any], entry: Mapping[str, Any], *, seed: int, limit: int, attempt: int = 0
    ) -> None:
        """Take over a call that was made before there was a journal: ``entry`` as a journal holds it. Booked once."""
        key = call_key(role, body, seed, attempt)
        held = self.journal.get(key)
        if held is not None:
            self._book_replayed(role, key, body, held, limit)
            return
        self.journal.add(key, entry)
        self._booked.add(key)
        self.ledger.count(role, "calls")
        if "answer" in entry:
            usage = usage_of(role, entry["answer"], estimated_usage(role, body, limit))
            self.ledger.spend(usage, endpoint_for(self.endpoints, role))

    async def _shared(self, key: str, send: Callable[[], Awaitable[Answer]]) -> Answer:
        """One request for all that ask the same now; it is dropped when the last of them stops waiting."""
        flight = self._flights.get(key)
        if flight is None:
            flight = self._flights[key] = _Flight(asyncio.ensure_future(send()))
        flight.waiters += 1
        try:
            return await asyncio.shield(flight.task)
        finally:
            flight.waiters -= 1
            if not flight.waiters and self._flights.get(key) is flight:
                del self._flights[key]
                flight.task.cancel()

    async def _send(self, role: str, path: str, body: Mapping[str, Any], key: str, limit: int, route: str) -> Answer:
        endpoint = endpoint_for(self.endpoints, role)
        estimate = estimated_usage(role, body, limit)
        self._check_prices(role, endpoint)
        self.ledger.reserve(estimate, endpoint)
        self.ledger.count(role, "calls")
        tokens = estimate.prompt_tokens + estimate.completion_tokens
        try:
            answer = await self._transport(role, endpoint).post(path, body, tokens=tokens, route=route)
        except ModelCallError as error:
            self.ledger.count(role, f"failed_{error.reason}")
            self.journal.add(key, {"role": role, "failed": error.reason, "detail": str(error)})
            self._booked.add(key)
            raise
        finally:
            self.ledger.release(estimate, endpoint)
        self.journal.add(key, {"role": role, "answer": answer})
        self._booked.add(key)
        self.ledger.spend(usage_of(role, answer, estimate), endpoint)
        return answer

    def _book_replayed(self, role: str, key: str, body: Mapping[str, Any], held: Mapping[str, Any], limit: int) -> None:
        if key in self._booked:
            return
        self._booked.add(key)
        self.ledger.count(role, "replayed")
        if "answer" in held:
            usage = usage_of(role, held["answer"], estimated_usage(role, body, limit))
            self.ledger.spend(usage, endpoint_for(self.endpoints, role))

    def _transport(self, role: str, endpoint: EndpointSettings) -> Transport:
        if role not in self._transports:
            self._transports[role] = Transport(endpoint, lambda: self.ledger.count(role, "tries"))
        return self._transports[role]

    def _check_prices(self, role: str, endpoint: EndpointSettings) -> None:
        if self.budget.usd is not None and not endpoint.has_prices:
            raise UsageError(
                f"--budget-usd needs the prices of role '{role}': set endpoints.{role}.usd_per_million_prompt_tokens"
                " and usd_per_million_completion_tokens (0 for a model of your own), or use --budget-tokens."
            )


def _answer_of(entry: Mapping[str, Any]) -> Answer:
    if "answer" in entry:
        answer: Answer = entry["answer"]
        return answer
    reason = str(entry.get("failed"))
    raise ModelCallError(reason, str(entry.get("detail", "")).removeprefix(f"{reason}: "))


def calls_of(config: CallsConfig, journal_path: Path | None) -> ModelCalls:
    """The calls of a stage with that configuration."""
    cache = CallCache(config.cache_folder or default_cache_folder()) if config.cache else None
    return ModelCalls(config.endpoints, journal_path, config.budget, cache)


@runtime_checkable
class UsesModels(Protocol):
    """A part (engine, environment, judge) that asks language models."""

    def connect(self, calls: ModelCalls) -> None:
        """Take the calls of the stage that uses this part; before any dialogue."""


def connect(calls: ModelCalls, *parts: object) -> None:
    """Give ``calls`` to each of ``parts`` that uses models."""
    for part in parts:
        if isinstance(part, UsesModels):
            part.connect(calls)
