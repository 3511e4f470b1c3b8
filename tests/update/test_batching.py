"""Dialogues are dealt to optimiser steps and forward passes so that each is seen once."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.update.worlds import random_rows, read_data, turn_row, write_advantages

from dialrl.update.batching import micro_batches, mini_batches
from dialrl.update.config import UpdateConfig
from dialrl.update.plan import no_signal_sentence, plan_steps


def test_ten_dialogues_by_four_give_four_three_and_three() -> None:
    parts = mini_batches(10, 4, seed=0, step=0, epoch=0)
    assert [len(part) for part in parts] == [4, 3, 3]


def test_a_batch_larger_than_the_file_is_the_whole_file() -> None:
    # Field case 16: four dialogues at batch 16.
    assert mini_batches(4, 16, seed=0, step=0, epoch=0) == [[0, 1, 2, 3]]
    assert mini_batches(0, 16, seed=0, step=0, epoch=0) == []


def test_the_order_follows_from_seed_step_and_epoch() -> None:
    def order(**where: int) -> list[list[int]]:
        return mini_batches(40, 8, **{"seed": 0, "step": 0, "epoch": 0, **where})

    assert order() == order()
    assert order() != order(epoch=1)
    assert order() != order(step=1)
    assert order() != order(seed=1)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 60), st.integers(1, 20))
def test_every_dialogue_is_in_exactly_one_step(dialogues: int, size: int) -> None:
    parts = mini_batches(dialogues, size, seed=1, step=2, epoch=3)
    assert sorted(dialogue for part in parts for dialogue in part) == list(range(dialogues))
    assert all(0 < len(part) <= size for part in parts)


@pytest.mark.parametrize("loss", ["ppo", "gspo"])
def test_every_sequence_of_a_step_goes_through_the_model_once(loss: str, tmp_path: Path) -> None:
    config = UpdateConfig(loss=loss, micro_batch_tokens=30)  # type: ignore[arg-type]
    data = read_data(write_advantages(tmp_path / "a.parquet", random_rows(9)), config)
    batches = micro_batches(data, [0, 2, 5], config)
    expected = [i for i, dialogue in enumerate(data.sequence_dialogue) if dialogue in (0, 2, 5)]
    assert sorted(index for batch in batches for index in batch) == expected
    assert len(batches) > 1


def test_a_dialogue_that_shares_one_ratio_is_never_cut(tmp_path: Path) -> None:
    rows = [turn_row("g", s, t, [1], [2, 3], segment=t) for s in range(3) for t in range(4)]
    config = UpdateConfig(loss="gspo", micro_batch_tokens=1)
    data = read_data(write_advantages(tmp_path / "a.parquet", rows), config)
    assert micro_batches(data, [0, 1, 2], config) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]


def test_a_mini_batch_without_signal_gives_no_step(tmp_path: Path) -> None:
    rows = [turn_row("g", sample, 0, [1], [2], advantage=float(sample == 0)) for sample in range(4)]
    config = UpdateConfig(mini_batch_dialogues=1)
    data = read_data(write_advantages(tmp_path / "a.parquet", rows), config)
    (step,) = plan_steps(data, config, step=0)
    assert step.dialogues == [0]
    assert step.weights_T.tolist() == [1.0, 0.0, 0.0, 0.0]


def test_a_file_without_signal_says_why(tmp_path: Path) -> None:
    # Field case 9: all pools degenerate.
    rows = [turn_row("g", sample, 0, [1], [2], advantage=0.0) for sample in range(3)]
    data = read_data(write_advantages(tmp_path / "a.parquet", rows), UpdateConfig())
    assert plan_steps(data, UpdateConfig(), step=0) == []
    assert "no learning signal: every one of the 3 trained turns has advantage 0" in no_signal_sentence(data)
    nulls = [turn_row("g", sample, 0, [1], [2], advantage=None) for sample in range(3)]
    data = read_data(write_advantages(tmp_path / "b.parquet", nulls), UpdateConfig())
    assert "none of 3 turns is trained (3 without advantage)" in no_signal_sentence(data)
