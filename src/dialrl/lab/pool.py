"""Runs several runs of the fast tier side by side, one process a core. Not here: which runs."""

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from multiprocessing.process import BaseProcess
from threading import Thread
from typing import Any, TypeVar

from dialrl.environment.demo.planner import DemoReference
from dialrl.errors import RunError
from dialrl.lab.config import FastConfig
from dialrl.lab.fast import FastPoint, play_fast, reference_of

Job = tuple[dict[str, Any], DemoReference]
Done = tuple[tuple[FastPoint, ...], float]
JobT = TypeVar("JobT")
DoneT = TypeVar("DoneT")


@contextmanager
def workers(jobs: int) -> Iterator["Workers"]:
    """``jobs`` processes, or this one where ``jobs`` is 1. Work not begun is dropped when the block is left."""
    if jobs == 1:
        yield Workers(None)
        return
    # Matrices here are small: a second thread in each process would only get in the way of the other processes.
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    executor = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=begin_worker)
    try:
        yield Workers(executor)
    finally:
        executor.shutdown(cancel_futures=True)


def begin_worker() -> None:
    """A worker ends with the process that started it, which a kill keeps from ending its workers; Ctrl-C is for that
    process alone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    if parent is not None:
        Thread(target=_end_after, args=(parent,), daemon=True).start()


def _end_after(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)


class Workers:
    """Does work in other processes, or here."""

    def __init__(self, executor: ProcessPoolExecutor | None) -> None:
        self._executor = executor

    def references(self, worlds: Sequence[tuple[int, int]]) -> list[DemoReference]:
        """Exact values of worlds (turn limit, extra trust)."""
        if self._executor is None:
            return [reference_of(*world) for world in worlds]
        return list(self._executor.map(reference_of, *zip(*worlds, strict=True)))

    def each(self, work: Callable[[JobT], DoneT], jobs: Sequence[JobT], finished: Callable[[int, DoneT], None]) -> None:
        """Do ``work`` on all ``jobs``; ``finished`` gets the place of each and its result as it comes.

        ``work`` is a function of a module, so that another process finds it. Raises RunError.
        """
        if self._executor is None:
            for place, job in enumerate(jobs):
                finished(place, work(job))
            return
        waiting: dict[Future[DoneT], int] = {self._executor.submit(work, job): place for place, job in enumerate(jobs)}
        while waiting:
            ended, _ = wait(waiting, return_when=FIRST_COMPLETED)
            for future in ended:
                place = waiting.pop(future)
                failure = future.exception()
                if failure is not None:
                    raise RunError(f"A run of the laboratory failed ({jobs[place]}): {failure}") from failure
                finished(place, future.result())


def play_job(job: Job) -> Done:
    """One run: its learning curve and the seconds it took."""
    options, reference = job
    began = time.monotonic()
    return play_fast(FastConfig(**options), reference).curve, time.monotonic() - began
