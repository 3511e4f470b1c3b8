"""Settings that cannot work are refused before anything loads, with their numbers; the schedule is as written."""

import subprocess
import sys
from typing import Any

import pytest

from dialrl.config import validated
from dialrl.errors import UsageError
from dialrl.update.config import UpdateConfig
from dialrl.update.schedule import learning_rate


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kl_loss": "k1"}, "expected gradient of 0"),
        ({"kl_coefficient": 0.1}, "no reference policy is given"),
        ({"aggregation": "dialogue-sum-constant"}, "dialogue_token_limit"),
        ({"loss": "sft", "entropy_bonus": 0.1}, "no place in loss sft"),
        ({"clip_low": 1.5}, "clip_low"),
        ({"dual_clip": 0.5}, "dual_clip"),
        ({"epochs": 0}, "epochs"),
        ({"learning_rate": float("nan")}, "learning_rate"),
        ({"learn_rate": 1e-6}, "Did you mean 'learning_rate'"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        validated(UpdateConfig, options, where="update")


@pytest.mark.parametrize(
    ("options", "total", "message"),
    [
        ({"schedule": "cosine"}, None, "give --total-steps"),
        ({"warmup_steps": 10}, 10, "warmup_steps is 10; expected less than the total steps, 10"),
        ({}, 0, "--total-steps got 0"),
    ],
)
def test_impossible_schedules_are_refused(options: dict[str, Any], total: int | None, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        UpdateConfig(**options).check_total_steps(total)


@pytest.mark.parametrize(("loss", "clip"), [("ppo", (0.2, 0.28)), ("gspo", (3e-4, 4e-4)), ("cispo", (0.2, 0.28))])
def test_every_loss_has_its_own_clip(loss: str, clip: tuple[float, float]) -> None:
    assert UpdateConfig(loss=loss).clip == clip  # type: ignore[arg-type]
    assert UpdateConfig(loss=loss, clip_low=0.1).clip == (0.1, clip[1])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "rates"),
    [
        ({"schedule": "constant", "warmup_steps": 2}, [0.5, 1, 1, 1, 1, 1, 1]),
        ({"schedule": "cosine", "warmup_steps": 2}, [0.5, 1, 1, 0.85355339, 0.5, 0.14644661, 0]),
        ({"schedule": "linear"}, [1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6, 0]),
        ({"schedule": "linear", "final_learning_rate_share": 0.4}, [1, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4]),
    ],
)
def test_learning_rates_of_six_steps_and_one_beyond(options: dict[str, Any], rates: list[float]) -> None:
    config = UpdateConfig(learning_rate=1.0, **options)
    assert [learning_rate(config, step, 6) for step in range(7)] == pytest.approx(rates)


def test_speed_and_places_are_operational_and_numbers_are_not() -> None:
    operational = {name for name in UpdateConfig.model_fields if UpdateConfig.is_operational(name)}
    assert operational == {
        "layout", "micro_batch_tokens", "micro_batch_dialogues", "head_chunk_tokens", "gradient_checkpointing",
        "device",
        "processes", "attention",
    }  # fmt: skip


def test_the_options_load_without_torch() -> None:
    code = "import sys, dialrl.update.config; print('torch' in sys.modules, 'pyarrow' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.split() == ["False", "False"]
