"""One piece of work in a thread of its own beside another, and both are over when the block is left.

Not here: what works beside what (``loop``).
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import TypeVar

ResultT = TypeVar("ResultT")


@contextmanager
def beside(work: Callable[[], ResultT], stop: Callable[[], None]) -> Iterator[Future[ResultT]]:
    """Run ``work`` while the block runs; the block's end waits for it and raises its error.

    When the block fails or is interrupted, ``stop`` is called, so that ``work`` ends early, and the block's own error
    goes on.
    """
    with ThreadPoolExecutor(1, "beside") as pool, ExitStack() as undo:
        undo.callback(stop)
        running = pool.submit(work)
        yield running
        running.result()
        undo.pop_all()
