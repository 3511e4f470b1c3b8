"""Requests of many threads to batches of one model: what waits together and is drawn alike is answered together."""

import atexit
import queue
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Protocol

from dialrl.engine.base import Generation
from dialrl.engine.serving.asked import Asked

_GATHERING_SECONDS = 0.1  # requests of one turn come in while a busy client writes them


class Answers(Protocol):
    """A model that answers a batch, until ``stop`` is set."""

    stop: threading.Event

    def answer(self, batch: Sequence[Asked]) -> list[Generation]:
        """One answer a request, in order."""


@dataclass
class _Waiting:
    asked: Asked
    future: "Future[Generation]" = field(default_factory=Future)

    @property
    def kind(self) -> object:
        """Requests of one kind may share a batch: same settings, ends of an answer, and beginning of the prompt."""
        template = None if self.asked.template is None else id(self.asked.template)
        sampling = replace(self.asked.sampling, max_reply_tokens=1)
        return sampling, self.asked.schema is None, template, self.asked.beginning


class Batching:
    """A thread that feeds ``model``, ``most`` requests at a time."""

    def __init__(self, model: Answers, most: int = 16) -> None:
        self._model, self._most = model, most
        self._queue: queue.Queue[_Waiting | None] = queue.Queue()
        self._thread = threading.Thread(target=self._work, name="dialrl-serving", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def ask(self, asked: Asked) -> Generation:
        """The answer; blocks until it is there. Raises what the model raised."""
        waiting = _Waiting(asked)
        self._queue.put(waiting)
        return waiting.future.result()

    def close(self) -> None:
        """No further requests; what is being answered is cut short."""
        self._model.stop.set()
        self._queue.put(None)
        self._thread.join()
        atexit.unregister(self.close)

    def _work(self) -> None:
        held: list[_Waiting] = []
        while True:
            if not held:
                first = self._queue.get()
                if first is None:
                    return
                held.append(first)
            if not self._gather(held):
                self._queue.put(None)
            batch = [waiting for waiting in held if waiting.kind == held[0].kind][: self._most]
            held = [waiting for waiting in held if waiting not in batch]
            self._answer(batch)

    def _gather(self, held: list[_Waiting]) -> bool:
        """Take what has come in; False when it is time to end."""
        while True:
            try:
                waiting = self._queue.get(timeout=_GATHERING_SECONDS)
            except queue.Empty:
                return True
            if waiting is None:
                return False
            held.append(waiting)

    def _answer(self, batch: Sequence[_Waiting]) -> None:
        try:
            replies = self._model.answer([waiting.asked for waiting in batch])
        except Exception as error:  # noqa: BLE001 - whoever asked is told; the thread goes on for the others
            if len(batch) > 1:  # one broken request must not break those it met here
                for waiting in batch:
                    self._answer([waiting])
                return
            batch[0].future.set_exception(error)
            return
        for waiting, reply in zip(batch, replies, strict=True):
            waiting.future.set_result(reply)
