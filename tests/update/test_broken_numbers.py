"""Numbers in a file that no update can come from are refused, naming dialogue, turn and token."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.update.worlds import random_rows, read_data, save_policy, tiny_model, turn_row, write_advantages

from dialrl.errors import InputError, NumericalError
from dialrl.update.config import UpdateConfig
from dialrl.update.passes import Passes
from dialrl.update.trainer import Trainer

BASE: dict[str, Any] = {"learning_rate": 1e-2, "max_mismatch": 100.0}


def rows_with(**changes: Any) -> list[dict[str, Any]]:
    return [turn_row("g", 0, 0, [1, 2], [3]), turn_row("g", 0, 1, [4], [5, 6, 7], **changes)]


@pytest.mark.parametrize("logprob", [5.0, 0.1])
def test_a_log_prob_above_zero_is_refused(logprob: float, tmp_path: Path) -> None:
    file = write_advantages(tmp_path / "a.parquet", rows_with(reply_logprobs=[-1.0, logprob, -1.0]))
    with pytest.raises(InputError, match=rf"dialogue 'g/0', turn 1, token 1 has log-prob {logprob:g}, a probability"):
        read_data(file, UpdateConfig())


def test_a_log_prob_that_is_zero_up_to_rounding_is_none(tmp_path: Path) -> None:
    file = write_advantages(tmp_path / "a.parquet", rows_with(reply_logprobs=[0.0, 1e-6, -1.0]))
    assert read_data(file, UpdateConfig()).trained_tokens == 4


@pytest.mark.parametrize("name", ["prompt_ids", "reply_ids"])
def test_a_null_inside_a_list_of_ids_is_named(name: str, tmp_path: Path) -> None:
    changes = {"prompt_ids": [4, None], "reply_ids": [5, None, 7]}
    file = write_advantages(tmp_path / "a.parquet", rows_with(**{name: changes[name]}))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(InputError, match=rf"dialogue 'g/0', turn 1 has {name} with null at place 1"):
            read_data(file, UpdateConfig())


@pytest.mark.parametrize("size", ["packed", "padded"])
def test_a_huge_advantage_is_named_by_its_token_without_a_word_of_numpy(size: str, tmp_path: Path) -> None:
    policy = save_policy(tmp_path / "p0")
    rows = [*random_rows(2), *[{**row, "group_id": "h"} for row in rows_with(advantage=1e300)]]
    file = write_advantages(tmp_path / "a.parquet", rows)
    trainer = Trainer.open(policy, UpdateConfig(**BASE, layout=size))  # type: ignore[arg-type]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(NumericalError, match=r"First of dialogue 'h/0', turn 1, token 0 \(advantage 1e\+300\)"):
            trainer.step_file(file)


def test_where_every_token_is_broken_without_its_weight_the_turns_are_named(tmp_path: Path) -> None:
    data = read_data(write_advantages(tmp_path / "a.parquet", rows_with()), UpdateConfig())
    model = tiny_model()
    passes = Passes(model, data, UpdateConfig())
    passes._is_broken = lambda index, weights: True  # type: ignore[method-assign]
    assert passes.name_culprit([0], np.ones(data.trained_tokens)) == " First of dialogue 'g/0', turns 0 to 1."


def test_the_spread_of_huge_numbers_is_a_number(tmp_path: Path) -> None:
    rows = [turn_row("g", 0, 0, [1], [2], advantage=1e200), turn_row("g", 1, 0, [1], [2], advantage=-1e200)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data = read_data(write_advantages(tmp_path / "a.parquet", rows), UpdateConfig())
    assert data.spreads["advantage_std"] == 1e200
