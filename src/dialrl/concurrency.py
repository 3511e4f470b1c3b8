"""Runs a coroutine to its end from ordinary code, also inside a notebook whose event loop is already running; and how
many cores there are to run on.

An end that is asked for meanwhile (Ctrl-C, SIGTERM) cancels the work as a whole, not the one task that happens to run,
so that every part of it is put away; the caller gets a KeyboardInterrupt. Asked again, it is raised at once.
"""

import asyncio
import os
import signal
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """The result of ``work``. Raises KeyboardInterrupt where a signal's handler did so meanwhile."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _Interruptible().run(work)
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(asyncio.run, work).result()


class _Interruptible:
    """One event loop, and the signals that come while it runs."""

    def __init__(self) -> None:
        self._asked = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            with self._signals():
                return asyncio.run(self._known(work))
        except asyncio.CancelledError:
            if self._asked:
                raise KeyboardInterrupt from None
            raise

    async def _known(self, work: Coroutine[Any, Any, T]) -> T:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        return await work

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Pass each signal on to whoever handled it before; where that interrupts, cancel the work instead."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: handler for number in _SIGNALS if callable(handler := signal.getsignal(number))}

        def end(number: int, frame: FrameType | None) -> None:
            try:
                before[signal.Signals(number)](number, frame)
            except KeyboardInterrupt:
                if self._asked or self._task is None or self._loop is None:
                    raise
                self._asked = True
                self._loop.call_soon_threadsafe(self._task.cancel)

        for number in before:
            signal.signal(number, end)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def usable_cores() -> int:
    """CPU cores that this process may use, limits of a container included."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    try:
        quota = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
    except OSError:  # no container, or none that says
        return cores
    if len(quota) == 2 and quota[0].isdigit():
        return max(1, min(cores, -(-int(quota[0]) // int(quota[1]))))
    return cores
