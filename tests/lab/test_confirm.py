"""The confirmation tier: runs of dialrl train that differ in preset and seed alone, read back as learning curves."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.lab.watched import Watched

from dialrl.environment.demo.planner import DemoReference
from dialrl.errors import InputError, UsageError
from dialrl.evaluate.study_table import read_table
from dialrl.lab.config import ConfirmConfig
from dialrl.lab.confirm import Plan, read_run, run_confirm
from dialrl.lab.runs import RunKey
from dialrl.lab.training import TrainingWatch, remove_run

KEY = RunKey("confirm", "standard", "mica", 5e-4, 0, {})
EXACT = {"silent": 0.0, "myopic": 3.0, "optimum": 12.0, "clairvoyant": 13.0}
TINY = ConfirmConfig(
    presets=("mica", "grpo"),
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


def lines(path: Path, records: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


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


def test_a_run_of_an_older_version_with_fewer_options_is_still_that_run() -> None:
    key = Plan.of(ConfirmConfig(), "mica", 0).key
    stored = json.loads(json.dumps(key.to_json()))
    del stored["options"]["update.dual_clip"], stored["options"]["judge.seed"]
    assert key.is_met_by(stored)
    stored["options"]["update.dual_clip"] = 5.0
    assert not key.is_met_by(stored)
    assert not Plan.of(ConfirmConfig(), "mica", 1).key.is_met_by(stored)


def test_the_length_of_a_run_is_part_of_what_it_is() -> None:
    names = {Plan.of(ConfirmConfig(iterations=number), "mica", 0).key.file_name for number in (10, 20)}
    assert len(names) == 2


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two presets trained side by side; tests read it and do not change it."""
    folder = tmp_path_factory.mktemp("lab") / "confirm"
    watched = Watched()
    summary = run_confirm(folder, TINY, progress=watched)
    assert summary.counts == {"runs": 2, "trained_now": 2}
    assert (watched.total, watched.done) == ({"lab confirm": 2}, {"lab confirm": 2})
    return folder


def test_the_table_holds_every_run_preset_by_preset(study: Path) -> None:
    rows = read_table(study / "lab.parquet").to_pylist()
    assert [(row["tier"], row["preset"], row["iteration"], row["dialogues"]) for row in rows] == [
        ("confirm", "mica", 0, 0),
        ("confirm", "mica", 1, 2),
        ("confirm", "grpo", 0, 0),
        ("confirm", "grpo", 1, 2),
    ]


def test_runs_side_by_side_find_what_one_after_another_finds(study: Path, tmp_path: Path) -> None:
    run_confirm(tmp_path / "one", TINY.updated(jobs=1))
    one, two = (read_table(folder / "lab.parquet").drop(["seconds"]) for folder in (tmp_path / "one", study))
    assert one.equals(two)
    advantage = Path("train", "grpo-seed0", "0000", "advantage.parquet")
    assert pq.read_table(study / advantage).equals(pq.read_table(tmp_path / "one" / advantage))


def test_a_finished_study_is_resumed_without_training(study: Path) -> None:
    before, watched = (study / "lab.parquet").read_bytes(), Watched()
    again = run_confirm(study, TINY.updated(jobs=1), resume=True, progress=watched)
    assert again.counts == {"runs": 2, "trained_now": 0}
    assert (watched.total["lab confirm"], (study / "lab.parquet").read_bytes()) == (0, before)


def test_runs_of_two_folders_put_together_are_one_study(study: Path, tmp_path: Path) -> None:
    runs = sorted((study / "runs").rglob("*.json"))
    for file in runs:
        write(tmp_path / "both" / "runs" / file.relative_to(study / "runs"), json.loads(file.read_text()))
    both = run_confirm(tmp_path / "both", TINY, resume=True)
    assert both.counts == {"runs": 2, "trained_now": 0}
    assert (tmp_path / "both" / "lab.parquet").read_bytes() == (study / "lab.parquet").read_bytes()


def test_a_run_that_fails_is_named_and_its_error_keeps_its_kind(tmp_path: Path) -> None:
    write(tmp_path / "train" / "mica-seed0" / "notes.json", {})
    with pytest.raises(UsageError, match=r"failed \(mica-seed0\): .*is not empty"):
        run_confirm(tmp_path, TINY.updated(presets=("mica",)))


def test_progress_follows_the_files_of_runs_in_other_processes(tmp_path: Path) -> None:
    one, other = tmp_path / "mica-seed0", tmp_path / "grpo-seed0"
    lines(one / "metrics.jsonl", [{}, {}])
    watched = Watched()
    watch = TrainingWatch([one, other], 5, watched)
    assert watched.total["lab confirm"] == 3 + 5  # two iterations of one are there from before
    watch.look()
    assert watched.done["lab confirm"] == 0
    lines(one / "metrics.jsonl", [{}, {}, {}])
    lines(one / "evaluations.jsonl", [{"share": 0.1}, {"share": 0.4}])
    watch.look()
    lines(other / "metrics.jsonl", [{}])
    watch.look()
    assert (watched.done["lab confirm"], watched.figures) == (2, {"mica-seed0": 0.4})
    lines(one / "metrics.jsonl", [{}] * 5)
    watch.finished(one)
    lines(other / "metrics.jsonl", [{}] * 5)
    watch.finished(other)
    assert (watched.done["lab confirm"], watched.figures) == (8, {})


def test_beginning_anew_removes_runs_and_nothing_else(tmp_path: Path) -> None:
    write(tmp_path / "run" / "pipeline.yaml", {})
    write(tmp_path / "mine" / "notes.json", {})
    for name in ("run", "mine", "not there"):
        remove_run(tmp_path / name)
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["mine"]
