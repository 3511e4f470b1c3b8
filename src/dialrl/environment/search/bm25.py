"""The embedded retriever: BM25 over a passages file by the library bm25s, its index kept on disk.

The index is named by the passages' digest, so a changed file gets a new one. Not here: reading passages (``passages``).
"""

from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from dialrl.environment.search.passages import given_or_shipped, load_passages
from dialrl.environment.search.retriever import Passage
from dialrl.errors import UsageError, missing_extra
from dialrl.trajectory.reader import file_digest

_COMPLETE = "complete"
_WORTH_KEEPING = 10_000  # passages; an index of fewer is made in a second


class Bm25Retriever:
    """``passages``: a JSON-lines file, or one that ships. ``index``: folder of the kept index.

    Without ``index`` that of 10,000 passages or more is kept in ``.NAME.bm25`` beside them, and a smaller one is not.
    Passages that share no word with a query are never returned. Raises MissingExtraError without bm25s.
    """

    def __init__(self, passages: str | None = None, index: str | None = None) -> None:
        if passages is None:
            raise UsageError("The retriever bm25 needs its passages: retriever_options.passages=FILE.jsonl")
        self._library = _library()
        path = given_or_shipped(passages)
        self._passages = load_passages(path)
        if index is None and len(self._passages) < _WORTH_KEEPING:
            self._index = self._made()
            return
        folder = Path(index) if index is not None else path.with_name(f".{path.name}.bm25")
        digest = file_digest(path).removeprefix("sha256:")[:16]
        self._index = self._kept(folder / f"{digest}-{version('bm25s')}")

    async def search(self, queries: Sequence[str], top_k: int) -> list[list[Passage]]:
        return [self._find(query, top_k) for query in queries]

    def _find(self, query: str, top_k: int) -> list[Passage]:
        number = min(top_k, len(self._passages))
        places, scores = self._index.retrieve(self._tokens([query]), k=number, show_progress=False)
        # Equal scores in order of place: which of them a sort takes first is no matter of chance.
        found = sorted(zip(scores[0].tolist(), places[0].tolist(), strict=True), key=lambda hit: (-hit[0], hit[1]))
        return [self._passages[place] for score, place in found if score > 0]

    def _kept(self, folder: Path) -> Any:
        if (folder / _COMPLETE).is_file():
            return self._library.BM25.load(folder)
        index = self._made()
        folder.mkdir(parents=True, exist_ok=True)
        index.save(folder)
        (folder / _COMPLETE).touch()
        return index

    def _made(self) -> Any:
        index = self._library.BM25()
        index.index(self._tokens([f"{p.title} {p.text}" for p in self._passages]), show_progress=False)
        return index

    def _tokens(self, texts: Sequence[str]) -> Any:
        return self._library.tokenize(list(texts), stopwords="en", show_progress=False)


def _library() -> Any:
    try:
        return import_module("bm25s")
    except ModuleNotFoundError as error:
        raise missing_extra("search", "bm25s") from error
