"""The confirmation tier: runs of dialrl train that differ in preset and seed alone, read back as learning curves."""

import json
from pathlib import Path
from typing import Any

import pytest

from dialrl.environment.demo.planner import DemoReference
from dialrl.errors import InputError
from dialrl.evaluate.study_table import read_table
from dialrl.lab.config import ConfirmConfig
from dialrl.lab.confirm import Plan, read_run, run_confirm
from dialrl.lab.runs import RunKey

KEY = RunKey("confirm", "standard", "mica", 5e-4, 0, {})
EXACT = {"silent": 0.0, "myopic": 3.0, "optimum": 12.0, "clairvoyant": 13.0}
TINY = ConfirmConfig(
    presets=("mica",),
    seeds=1,
    iterations=1,
    changes={
        "rollout": {"groups": 1, "samples": 2, "max_turns": 2},
        "evaluate": {"groups": 1, "samples": 1, "max_turns": 2},
        "update": {"warmup_steps": 0},
    },
)


def write_run(place: Path, iterations: int, evaluated: dict[int, float]) -> None:
    """The records of a run that ``dialrl train`` would leave: ``evaluated`` is iteration -> score, -1 the start."""
    for number in range(iterations):
        write(place / f"{number:04d}" / "metrics.json", {
            "update": {"gradient_norm": 0.1 * (number + 1), "entropy": 1.0 - 0.1 * number},
            "counts": {"rollout": {"dialogues": 8, "turns": 50}}, "seconds": {"rollout": 1.0, "update": 0.5},
        })  # fmt: skip
    for number, score in evaluated.items():
        folder = "base" if number < 0 else f"{number:04d}"
        reference = {name: {"score": value, "share": value / 12} for name, value in EXACT.items()}
        write(place / folder / "evaluation.json", {
            "iteration": number, "score": score, "share": score / 12, "success_rate": 0.25, "mean_turns": 7.5,
            "reference": reference,
        })  # fmt: skip


def write(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def test_a_run_of_train_becomes_a_learning_curve(tmp_path: Path) -> None:
    write_run(tmp_path, 4, {-1: -1.2, 1: 3.0, 3: 9.0})
    run = read_run(KEY, tmp_path)
    assert [(p.iteration, round(p.share, 9)) for p in run.curve] == [(0, -0.1), (2, 0.25), (4, 0.75)]
    assert [point.trained_dialogues for point in run.curve] == [0, 16, 32]
    assert [point.gradient_norm for point in run.curve] == [None, pytest.approx(0.15), pytest.approx(0.35)]
    assert [point.entropy for point in run.curve] == [None, pytest.approx(0.9), pytest.approx(0.7)]
    assert (run.reference, run.seconds) == (DemoReference(**EXACT), 6.0)


def test_a_run_elsewhere_has_no_share_and_is_refused(tmp_path: Path) -> None:
    write_run(tmp_path, 1, {})
    with pytest.raises(InputError, match="expected a run in the demo world"):
        read_run(KEY, tmp_path)


def test_plans_differ_in_preset_and_seed_alone() -> None:
    config = ConfirmConfig()
    one, other = (Plan.of(config, preset, seed) for preset, seed in (("mica", 0), ("grpo", 1)))
    differing = {name for name, value in one.key.options.items() if other.key.options[name] != value}
    assert differing == {"advantage.preset", "rollout.seed", "judge.seed", "update.seed"}
    assert (one.pipeline.advantage.turn_weight, one.pipeline.train.iterations) == (None, 60)
    assert one.pipeline.rollout.groups * one.pipeline.rollout.samples == 128


def test_the_length_of_a_run_is_part_of_what_it_is() -> None:
    names = {Plan.of(ConfirmConfig(iterations=number), "mica", 0).key.file_name for number in (10, 20)}
    assert len(names) == 2


def test_a_study_trains_writes_its_table_and_is_resumed_without_training(tmp_path: Path) -> None:
    first = run_confirm(tmp_path, TINY)
    rows = read_table(tmp_path / "lab.parquet").to_pylist()
    assert [(row["tier"], row["preset"], row["iteration"], row["dialogues"]) for row in rows] == [
        ("confirm", "mica", 0, 0),
        ("confirm", "mica", 1, 2),
    ]
    again = run_confirm(tmp_path, TINY, resume=True)
    assert (first.counts, again.counts) == ({"runs": 1, "trained_now": 1}, {"runs": 1, "trained_now": 0})
    assert again.figures == first.figures
