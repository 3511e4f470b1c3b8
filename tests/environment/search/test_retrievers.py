"""Retrievers: BM25 over a file with its index kept, HTTP on the loopback, and what is refused."""

import asyncio
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from dialrl.environment.search.bm25 import Bm25Retriever
from dialrl.environment.search.http import HttpRetriever
from dialrl.environment.search.passages import as_passage, load_passages
from dialrl.environment.search.retriever import Passage, open_retriever
from dialrl.errors import InputError, MissingExtraError, MissingInputError, RunError, UsageError

PASSAGES = [
    {"title": "Rome", "text": "Rome is a city in Italy."},
    {"title": "Oslo", "text": "Oslo is a city in Norway."},
    {"contents": '"Wool"\nSheep give wool.'},
]


def search(retriever, *queries, top_k=2):
    return asyncio.run(retriever.search(list(queries), top_k))


@pytest.fixture
def passages(tmp_path):
    path = tmp_path / "passages.jsonl"
    path.write_text("".join(json.dumps(passage) + "\n" for passage in PASSAGES))
    return path


# BM25 ---------------------------------------------------------------------------------------------------------------


def test_bm25_finds_what_shares_words_and_nothing_else(passages):
    retriever = Bm25Retriever(str(passages))
    found = search(retriever, "sheep", "a city", "zebra", "")
    assert [[passage.title for passage in hits] for hits in found] == [["Wool"], ["Rome", "Oslo"], [], []]
    assert [hit.title for hit in search(retriever, "city Norway", top_k=9)[0]] == ["Oslo", "Rome"]


def test_a_kept_index_is_not_made_again_and_a_changed_file_gets_a_new_one(passages, tmp_path, monkeypatch):
    import bm25s

    folder = tmp_path / "index"
    Bm25Retriever(str(passages), index=str(folder))
    with monkeypatch.context() as patched:
        patched.setattr(bm25s.BM25, "index", None)  # making it again would fail
        kept = Bm25Retriever(str(passages), index=str(folder))
    assert search(kept, "sheep")[0][0] == Passage("Wool", "Sheep give wool.")
    with passages.open("a") as handle:
        handle.write(json.dumps({"title": "Goat", "text": "Goats are no sheep."}) + "\n")
    changed = Bm25Retriever(str(passages), index=str(folder))
    assert {hit.title for hit in search(changed, "sheep")[0]} == {"Wool", "Goat"}
    assert len(list(folder.iterdir())) == 2


def test_a_large_index_lies_beside_its_passages_and_a_small_one_is_not_kept(passages, monkeypatch):
    Bm25Retriever(str(passages))
    assert [path.name for path in passages.parent.iterdir()] == ["passages.jsonl"]
    monkeypatch.setattr("dialrl.environment.search.bm25._WORTH_KEEPING", 3)
    Bm25Retriever(str(passages))
    assert (passages.parent / ".passages.jsonl.bm25").is_dir()


def test_without_the_library_the_extra_is_named(passages, monkeypatch):
    monkeypatch.setitem(sys.modules, "bm25s", None)
    with pytest.raises(MissingExtraError, match=r"dialrl\[search\]"):
        Bm25Retriever(str(passages))


def test_passages_are_named_and_checked(tmp_path):
    with pytest.raises(UsageError, match="needs its passages"):
        open_retriever("bm25", {})
    with pytest.raises(MissingInputError):
        load_passages(tmp_path / "none.jsonl")
    (tmp_path / "bad.jsonl").write_text('{"title": "x"}\n')
    with pytest.raises(InputError, match="line 1 is no passage"):
        load_passages(tmp_path / "bad.jsonl")
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(InputError, match="holds no passages"):
        load_passages(tmp_path / "empty.jsonl")
    assert as_passage({"contents": "one line"}, "here") == Passage("", "one line")


def test_an_unknown_retriever_and_unknown_options_are_refused():
    with pytest.raises(UsageError, match=r"'bm52' is none of the retrievers\. Did you mean 'bm25'\?"):
        open_retriever("bm52", {})
    with pytest.raises(UsageError, match="retrievers 'http' was given the options"):
        open_retriever("http", {"address": "x"})


# HTTP ---------------------------------------------------------------------------------------------------------------


class Handler(BaseHTTPRequestHandler):
    asked: list = []  # noqa: RUF012 - one server at a time
    answer: object = None
    wait = staticmethod(lambda: None)

    def do_POST(self):
        self.wait()
        type(self).asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        body = self.answer if isinstance(self.answer, bytes) else json.dumps(self.answer).encode()
        self.send_response(500 if body == b"broken" else 200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 128  # of 40 that arrive at once none is turned away


@pytest.fixture
def server():
    Handler.asked, Handler.wait = [], staticmethod(lambda: None)
    served = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=served.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{served.server_port}/retrieve"
    served.shutdown()
    thread.join()
    served.server_close()


def test_http_asks_with_queries_and_topk_and_reads_both_kinds_of_hit(server):
    hit = {"document": {"contents": '"Rome"\nA city.'}, "score": 1.5}
    Handler.answer = {"result": [[hit, {"title": "Oslo", "text": "Cold."}, hit], []]}
    found = search(HttpRetriever(server), "city", "zebra")
    assert found == [[Passage("Rome", "A city."), Passage("Oslo", "Cold.")], []]
    assert Handler.asked == [{"queries": ["city", "zebra"], "topk": 2}]


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (b"broken", "failed: HTTPError"),
        (b"no json", "failed: JSONDecodeError"),
        ({"result": []}, "one list a query"),
        ([], "one list a query"),
        ({"result": [7]}, "no list"),
        ({"result": [[{"title": "x"}]]}, "no passage"),
        ({"result": [["x"]]}, "no passage"),
    ],
)
def test_an_answer_that_is_none_is_a_failed_search(server, answer, fault):
    Handler.answer = answer
    with pytest.raises(RunError, match=fault):
        search(HttpRetriever(server), "city")


def test_a_server_that_hangs_is_a_failed_search(server):
    released = threading.Event()
    Handler.answer, Handler.wait = {"result": [[]]}, staticmethod(released.wait)
    with pytest.raises(RunError, match="timed out"):
        search(HttpRetriever(server, timeout_seconds=0.05), "city")
    released.set()


def test_many_dialogues_search_together(server):
    """Every request waits until all have arrived: with fewer at a time none would be answered."""
    together = threading.Barrier(40, timeout=20)
    Handler.answer, Handler.wait = {"result": [[{"title": "Oslo", "text": "Cold."}]]}, staticmethod(together.wait)
    retriever = HttpRetriever(server)

    async def all_of_them():
        return await asyncio.gather(*(retriever.search(["city"], 1) for _ in range(40)))

    assert asyncio.run(all_of_them()) == [[[Passage("Oslo", "Cold.")]]] * 40
    with pytest.raises(UsageError, match=r"retriever_options\.connections; got 0"):
        HttpRetriever(server, connections=0)


def test_nobody_there_is_a_failed_search_and_other_addresses_are_refused():
    with pytest.raises(RunError, match="failed: URLError"):
        search(HttpRetriever("http://127.0.0.1:9/x", timeout_seconds=2), "city")
    with pytest.raises(UsageError, match=r"retriever_options\.url"):
        HttpRetriever("file:///etc/passwd")
