"""Does several runs of the laboratory side by side, one process a core, one thread a process. Not here: which runs."""

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as readable
from threading import Thread
from typing import Any, TypeVar

from dialrl import errors
from dialrl.environment.demo.planner import DemoReference
from dialrl.errors import DialrlError, RunError
from dialrl.lab.config import FastConfig
from dialrl.lab.fast import FastPoint, play_fast, reference_of

Job = tuple[dict[str, Any], DemoReference]
Done = tuple[tuple[FastPoint, ...], float]
JobT = TypeVar("JobT")
DoneT = TypeVar("DoneT")


SECONDS_BETWEEN_LOOKS = 1.0


@contextmanager
def workers(jobs: int, *, apart: bool = False) -> Iterator["Workers"]:
    """``jobs`` processes, or this one where ``jobs`` is 1 and the work need not be ``apart`` from it.

    When the block is left, work not begun is dropped; left by an error or Ctrl-C, work under way ends at once, as by a
    kill.
    """
    if jobs == 1 and not apart:
        yield Workers(None)
        return
    # Matrices here are small: a second thread in each process would only get in the way of the other processes.
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    context = get_context("spawn")
    theirs, ours = context.Pipe(duplex=False)
    executor = ProcessPoolExecutor(jobs, mp_context=context, initializer=begin_worker, initargs=(theirs,))
    try:
        yield Workers(executor)
    except BaseException:
        ours.close()
        raise
    finally:
        executor.shutdown(cancel_futures=True)
        ours.close()
        theirs.close()


def begin_worker(until_closed: Connection) -> None:
    """A worker ends when nobody holds the other end of ``until_closed``: the process that started it closed it or was
    killed. Ctrl-C is for that process alone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_after, args=(until_closed,), daemon=True).start()


def _end_after(until_closed: Connection) -> None:
    readable([until_closed])
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

    def each(
        self,
        work: Callable[[JobT], DoneT],
        jobs: Sequence[JobT],
        finished: Callable[[int, DoneT], None],
        *,
        named: Callable[[JobT], str] = str,
        meanwhile: Callable[[], None] | None = None,
    ) -> None:
        """Do ``work`` on all ``jobs``; ``finished`` gets the place of each and its result as it comes.

        ``work`` is a function of a module, so that another process finds it. While other processes work, ``meanwhile``
        is called every second. Raises the error of a job with its name (``named``) in front; RunError for one that is
        none of this package's.
        """
        if self._executor is None:
            for place, job in enumerate(jobs):
                finished(place, work(job))
            return
        waiting: dict[Future[DoneT], int] = {self._executor.submit(work, job): place for place, job in enumerate(jobs)}
        while waiting:
            ended, _ = wait(waiting, SECONDS_BETWEEN_LOOKS if meanwhile else None, return_when=FIRST_COMPLETED)
            for future in ended:
                place = waiting.pop(future)
                failure = future.exception()
                if failure is not None:
                    raise _told(named(jobs[place]), failure) from failure
                finished(place, future.result())
            if meanwhile is not None:
                meanwhile()


def _told(name: str, failure: BaseException) -> DialrlError:
    """The error of a job in another process, of the same kind and with the job's name."""
    if isinstance(failure, BrokenExecutor):
        return RunError(
            "A process of the laboratory ended in the middle of its work: killed, perhaps for memory. Finished runs are"
            " kept; go on with --resume, with fewer --jobs where memory is short."
        )
    known = (kind for kind in type(failure).__mro__ if kind.__module__ == errors.__name__)
    kind = next(known, RunError)
    told: DialrlError = kind(f"A run of the laboratory failed ({name}): {failure}")
    return told


def play_job(job: Job) -> Done:
    """One run: its learning curve and the seconds it took."""
    options, reference = job
    began = time.monotonic()
    return play_fast(FastConfig(**options), reference).curve, time.monotonic() - began
