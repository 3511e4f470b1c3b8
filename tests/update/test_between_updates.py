"""What a trainer takes along from one update to the next, what it leaves behind, and how long its sequences may be."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.update.worlds import random_rows, save_policy, turn_row, write_advantages

from dialrl.errors import InputError
from dialrl.update.config import UpdateConfig
from dialrl.update.trainer import Trainer

BASE: dict[str, Any] = {"learning_rate": 1e-2, "max_mismatch": 100.0}


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    return save_policy(tmp_path / "p0")


def test_the_total_steps_of_a_run_are_those_its_state_remembers(policy: Path, tmp_path: Path) -> None:
    file = write_advantages(tmp_path / "a.parquet", random_rows(2))
    config = UpdateConfig(**BASE, schedule="linear")
    trainer = Trainer.open(policy, config, 4)
    trainer.step_file(file)
    trainer.save(tmp_path / "p1")
    later = Trainer.open(tmp_path / "p1", config)  # without total steps this schedule would be refused
    assert later.total_steps == 4
    assert later.step_file(file).rows[0]["learning_rate"] == pytest.approx(0.75e-2)  # step 1 of 0 to 3
    assert Trainer.open(tmp_path / "p1", config, 8).total_steps == 8


def test_metrics_are_those_of_the_files_since_the_last_save(policy: Path, tmp_path: Path) -> None:
    file = write_advantages(tmp_path / "a.parquet", random_rows(2))
    trainer = Trainer.open(policy, UpdateConfig(**BASE))
    for name in ("p1", "p2"):
        trainer.step_file(file)
        trainer.save(tmp_path / name)
    steps = [
        [json.loads(line)["step"] for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        for name in ("p1", "p2")
    ]
    assert steps == [[0], [1]]


@pytest.mark.parametrize(("asked", "limit"), [(None, 256), (100, 100), (1000, 256)])
def test_a_sequence_is_no_longer_than_the_models_own_context(
    asked: int | None, limit: int, policy: Path, tmp_path: Path
) -> None:
    trainer = Trainer.open(policy, UpdateConfig(**BASE, max_sequence_tokens=asked))
    assert trainer.limits.tokens == limit
    file = write_advantages(tmp_path / "a.parquet", [turn_row("g", 0, 0, [1] * limit, [2])])
    with pytest.raises(InputError, match=f"has {limit + 1} tokens; the limit is {limit}"):
        trainer.step_file(file)
