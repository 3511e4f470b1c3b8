"""How many CPU threads a model is worth. Whoever loads a model calls ``fit_threads``; training asks for more.

A tiny model generates fastest on one thread, and then bit for bit alike everywhere: a step's matrices are too small to
share. Its training passes read thousands of tokens at once; two threads make them 1.6 times as fast, with the same bits
(``benchmarks/threads.py``). Larger models use what there is. Not here: processes side by side.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_TINY_PARAMETERS = 3_000_000
_TRAINING_THREADS = 2  # three gave other bits
_given: list[int] = []  # threads that this process had before it loaded its first tiny model


def fit_threads(model: Any) -> int:
    """Set this process's torch threads to 1 when ``model`` lies on the CPU and is tiny; the number in force."""
    import torch

    if _is_tiny(model):
        if not _given:
            _given.append(torch.get_num_threads())
        torch.set_num_threads(1)
    return int(torch.get_num_threads())


@contextmanager
def training_threads(model: Any) -> Iterator[int]:
    """Inside, a tiny model on the CPU has two threads, if this process was given as many; the number in force.

    An update beside a rollout, in a thread of its own, keeps one: matrix products of the whole process would follow,
    and what the rollout draws would depend on when the update began.
    """
    import torch

    before = torch.get_num_threads()
    alone = threading.current_thread() is threading.main_thread()
    if _is_tiny(model) and before == 1 and _given and alone:
        torch.set_num_threads(min(_TRAINING_THREADS, _given[0]))
    try:
        yield int(torch.get_num_threads())
    finally:
        torch.set_num_threads(before)


def _is_tiny(model: Any) -> bool:
    return bool(model.device.type == "cpu" and model.num_parameters() < _TINY_PARAMETERS)
