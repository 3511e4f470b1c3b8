"""What finds passages: the protocol, a retriever whose results are written down, and retrievers by name.

Users' own come from installed packages (entry points ``dialrl.retrievers``). Not here: BM25 (``bm25``), HTTP
(``http``).
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from dialrl import plugins
from dialrl.errors import RunError


@dataclass(frozen=True)
class Passage:
    title: str
    text: str


class Retriever(Protocol):
    """Finds passages. What it raises, or that it hangs, is no fault of the policy: the dialogue breaks."""

    async def search(self, queries: Sequence[str], top_k: int) -> list[list[Passage]]:
        """Up to ``top_k`` passages a query, best first."""


BUILT_IN = {
    "bm25": ("dialrl.environment.search.bm25", "Bm25Retriever"),
    "http": ("dialrl.environment.search.http", "HttpRetriever"),
    "scripted": ("dialrl.environment.search.retriever", "ScriptedRetriever"),
}


def open_retriever(name: str, options: Mapping[str, Any]) -> Retriever:
    """The retriever ``name`` made with ``options``. Raises UsageError for unknown names or options."""
    made: Retriever = plugins.make("retrievers", name, options, built_in=BUILT_IN)
    return made


class ScriptedRetriever:
    """Results that are written down, for tests: ``results`` maps a query to texts; others find nothing.

    ``failures``: how many of the first searches fail (``fault``: "raise" or "hang").
    """

    def __init__(
        self, results: Mapping[str, Sequence[str]] | None = None, failures: int = 0, fault: str = "raise"
    ) -> None:
        self._results = dict(results or {})
        self._failures, self._fault = failures, fault
        self.asked: list[tuple[str, ...]] = []

    async def search(self, queries: Sequence[str], top_k: int) -> list[list[Passage]]:
        self.asked.append(tuple(queries))
        if len(self.asked) <= self._failures:
            if self._fault == "hang":
                await asyncio.Event().wait()
            raise RunError("the scripted retriever was told to fail")
        return [[Passage("", text) for text in self._results.get(query, ())][:top_k] for query in queries]
