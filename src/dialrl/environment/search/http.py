"""A retriever behind HTTP that takes ``{"queries": [...], "topk": K}`` and answers ``{"result": [[...], ...]}``.

One list of hits a query; a hit is a passage, or an object whose ``document`` is one (title and text, or contents). No
retries here: the environment tries again. Not here: what a failed search means for the dialogue.
"""

import asyncio
import json
import urllib.request
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from dialrl.environment.search.passages import as_passage
from dialrl.environment.search.retriever import Passage
from dialrl.errors import InputError, RunError, UsageError

_LARGEST_ANSWER_BYTES = 32 * 2**20


class HttpRetriever:
    """``url``: where requests are posted; http or https. ``timeout_seconds``: of one request.

    ``connections``: requests under way at a time. Hundreds of dialogues of a rollout search together; Python's own pool
    has a few threads, in whose queue searches would wait until they count as hanging.
    """

    def __init__(self, url: str = "", timeout_seconds: float = 30.0, connections: int = 64) -> None:
        if not url.startswith(("http://", "https://")):
            raise UsageError(f"The retriever http needs retriever_options.url=http://...; got '{url}'.")
        if connections < 1:
            raise UsageError(
                f"The retriever http needs at least one of retriever_options.connections; got {connections}."
            )
        self._url, self._timeout_seconds = url, timeout_seconds
        self._threads = ThreadPoolExecutor(connections, thread_name_prefix="retriever")

    async def search(self, queries: Sequence[str], top_k: int) -> list[list[Passage]]:
        body = {"queries": list(queries), "topk": top_k}
        answer = await asyncio.get_running_loop().run_in_executor(self._threads, self._post, body)
        results = answer.get("result") if isinstance(answer, Mapping) else None
        if not isinstance(results, list) or len(results) != len(queries):
            raise RunError(f"the retriever at {self._url} did not answer with one list a query under 'result'")
        return [_passages(hits)[:top_k] for hits in results]

    def _post(self, body: Mapping[str, Any]) -> Any:
        request = urllib.request.Request(  # noqa: S310 - http and https only, see above
            self._url, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=self._timeout_seconds) as answer:  # noqa: S310
                return json.loads(answer.read(_LARGEST_ANSWER_BYTES))
        except (OSError, ValueError) as error:
            raise RunError(f"the retriever at {self._url} failed: {type(error).__name__}: {error}") from None


def _passages(hits: Any) -> list[Passage]:
    if not isinstance(hits, list):
        raise RunError("the retriever gave hits that are no list")
    try:
        return [as_passage(hit.get("document", hit), "a hit") for hit in hits]
    except (AttributeError, InputError) as error:
        raise RunError(f"the retriever gave a hit that is no passage: {error}") from None
