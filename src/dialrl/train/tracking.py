"""Where metrics of a run go besides its own files: TensorBoard, Weights & Biases, trackio or MLflow. Off by default.

One small protocol; the library is imported when it is asked for, and takes places, projects and keys from its own
environment variables, never from a pipeline. The run directory stays the truth: a sink repeats ``metrics.jsonl``.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol

from dialrl.errors import missing_extra

Tracker = Literal["tensorboard", "wandb", "trackio", "mlflow"]
Open = Callable[[Path, Mapping[str, Any]], "MetricsSink"]


class MetricsSink(Protocol):
    """Takes the figures of each finished iteration; step 0 is the starting policy."""

    def record(self, step: int, figures: Mapping[str, float]) -> None:
        """Figures by name (``update/entropy``) at ``step`` finished iterations."""

    def close(self) -> None:
        """Nothing more comes; what was recorded is written."""


class Untracked:
    """The sink of a run that is not tracked."""

    def record(self, step: int, figures: Mapping[str, float]) -> None:
        pass

    def close(self) -> None:
        pass


def find_sink(tracker: Tracker | None) -> Open:
    """What opens the sink ``tracker`` for a run directory and its settings. Raises MissingExtraError at once."""
    if tracker is None:
        return lambda run, settings: Untracked()
    try:
        return _SINKS[tracker]()
    except ImportError:
        raise missing_extra(tracker, tracker) from None


def numbers(record: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a nested record under names joined by ``/``; everything else is left out.

    Example: ``{"share": 0.5, "update": {"loss": 0.1, "warnings": []}}`` -> ``{"share": 0.5, "update/loss": 0.1}``.
    """
    return dict(_numbers(record, ""))


def _numbers(record: Mapping[str, Any], start: str) -> Iterator[tuple[str, float]]:
    for name, value in record.items():
        if isinstance(value, Mapping):
            yield from _numbers(value, f"{start}{name}/")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield start + name, float(value)


def _stable_name(run: Path) -> str:
    """The same for the same run directory, so that a resumed run continues its record."""
    return hashlib.blake2b(str(run.resolve()).encode(), digest_size=8).hexdigest()


class _TensorBoard:
    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def record(self, step: int, figures: Mapping[str, float]) -> None:
        for name, value in figures.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class _Logged:
    """A library with ``log(figures, step=...)`` and ``finish()``: wandb, and trackio which follows it."""

    def __init__(self, library: Any) -> None:
        self._library = library

    def record(self, step: int, figures: Mapping[str, float]) -> None:
        self._library.log(dict(figures), step=step)

    def close(self) -> None:
        self._library.finish()


class _MLflow:
    def __init__(self, library: Any) -> None:
        self._library = library

    def record(self, step: int, figures: Mapping[str, float]) -> None:
        self._library.log_metrics(dict(figures), step=step)

    def close(self) -> None:
        self._library.end_run()


def _tensorboard() -> Open:
    from torch.utils.tensorboard import SummaryWriter

    return lambda run, settings: _TensorBoard(SummaryWriter(str(run / "tensorboard")))


def _wandb() -> Open:
    import wandb

    def open_sink(run: Path, settings: Mapping[str, Any]) -> MetricsSink:
        wandb.init(
            project="dialrl", name=run.name, id=_stable_name(run), dir=str(run), config=dict(settings), resume="allow"
        )
        return _Logged(wandb)

    return open_sink


def _trackio() -> Open:
    import trackio

    def open_sink(run: Path, settings: Mapping[str, Any]) -> MetricsSink:
        name = f"{run.name}-{_stable_name(run)[:6]}"
        trackio.init(project="dialrl", name=name, config=dict(settings), resume="allow")
        return _Logged(trackio)

    return open_sink


def _mlflow() -> Open:
    import mlflow

    def open_sink(run: Path, settings: Mapping[str, Any]) -> MetricsSink:
        mlflow.start_run(run_name=run.name, tags={"run_directory": run.name})
        mlflow.log_params(numbers(settings))
        return _MLflow(mlflow)

    return open_sink


_SINKS: Mapping[Tracker, Callable[[], Open]] = {
    "tensorboard": _tensorboard,
    "wandb": _wandb,
    "trackio": _trackio,
    "mlflow": _mlflow,
}
