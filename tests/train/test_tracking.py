"""Metrics to other tools: what is sent, when, and what is said when the tool is not there."""

import sys
from types import SimpleNamespace

import pytest

from dialrl.errors import MissingExtraError
from dialrl.train.config import PipelineConfig
from dialrl.train.loop import train
from dialrl.train.tracking import find_sink, numbers


def pipeline(policy, **changes):
    """Two iterations of one group of two dialogues, evaluated at the end."""
    return PipelineConfig.model_validate(
        {
            "policy": str(policy),
            "train": {"iterations": 2, "evaluate_every": 2, "save_every": 2, **changes},
            "rollout": {"groups": 1, "samples": 2, "max_turns": 2, "max_reply_tokens": 4},
            "update": {"device": "cpu"},
            "evaluate": {"groups": 1, "samples": 1, "resamples": 10},
        }
    )


class Recorded:
    """A library that keeps what it is given."""

    def __init__(self):
        self.started, self.steps, self.finished = [], [], 0

    def init(self, **settings):
        self.started.append(settings)

    def start_run(self, **settings):
        self.started.append(settings)

    def log_params(self, settings):
        self.started[-1]["config"] = settings

    def log(self, figures, step):
        self.steps.append((step, figures))

    log_metrics = log

    def finish(self):
        self.finished += 1

    end_run = finish

    def as_module(self):
        names = ("init", "start_run", "log_params", "log", "log_metrics", "finish", "end_run")
        return SimpleNamespace(**{name: getattr(self, name) for name in names})


def test_numbers_are_named_by_where_they_stand():
    record = {"share": 0.5, "update": {"loss": 1, "learning_signal": True, "warnings": ["x"]}, "note": None}
    assert numbers(record) == {"share": 0.5, "update/loss": 1.0}


@pytest.mark.parametrize("tracker", ["wandb", "trackio", "mlflow"])
def test_each_library_gets_settings_every_iteration_and_the_end(tracker, tmp_path, monkeypatch):
    library = Recorded()
    monkeypatch.setitem(sys.modules, tracker, library.as_module())
    sink = find_sink(tracker)(tmp_path / "demo", {"train": {"iterations": 3}, "policy": "demo-policy"})
    sink.record(1, {"share": 0.5})
    sink.close()
    assert len(library.started) == 1
    assert library.started[0]["config"] in (
        {"train": {"iterations": 3}, "policy": "demo-policy"},
        {"train/iterations": 3.0},
    )
    assert (library.steps, library.finished) == ([(1, {"share": 0.5})], 1)


def test_a_tracked_run_records_its_start_and_every_iteration(policy, tmp_path, monkeypatch):
    library = Recorded()
    monkeypatch.setitem(sys.modules, "wandb", library.as_module())
    train(pipeline(policy, track="wandb"), tmp_path / "run")
    assert [step for step, _ in library.steps] == [0, 1, 2]
    start, first, last = (figures for _, figures in library.steps)
    assert "evaluation/share" in start
    assert {"share", "update/entropy", "seconds/rollout", "counts/rollout/reply_tokens"} <= set(first)
    assert "evaluation/share" in last
    assert library.finished == 1
    assert library.started[0]["name"] == "run"


def test_a_run_may_be_continued_with_another_tracker_or_none(policy, tmp_path, monkeypatch):
    library = Recorded()
    monkeypatch.setitem(sys.modules, "trackio", library.as_module())
    train(pipeline(policy), tmp_path / "run")
    assert library.started == []
    train(pipeline(policy, track="trackio"), tmp_path / "run", resume=True)
    assert [step for step, _ in library.steps] == [0, 1, 2]


def test_a_tracker_that_is_not_installed_is_refused_before_anything_is_made(policy, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(MissingExtraError, match=r"dialrl\[mlflow\]"):
        train(pipeline(policy, track="mlflow"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_tensorboard_reads_what_was_recorded(tmp_path):
    pytest.importorskip("tensorboard", reason="tensorboard is not installed: its files are not read back")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    sink = find_sink("tensorboard")(tmp_path, {})
    sink.record(1, {"share": 0.25})
    sink.record(2, {"share": 0.5})
    sink.close()
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [(event.step, event.value) for event in events.Scalars("share")] == [(1, 0.25), (2, 0.5)]
