"""Loss and gradients of an optimiser step equal the plain float64 reference for every way of cutting the step."""

from copy import deepcopy
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.update.worlds import gradients, random_rows, read_data, reference_loss, tiny_model, write_advantages

from dialrl.model import logprobs
from dialrl.model.layout import prepare_layout
from dialrl.update.config import UpdateConfig
from dialrl.update.data import TrainingData
from dialrl.update.passes import Passes
from dialrl.update.plan import plan_steps
from dialrl.update.statistics import StepSums

ROWS = random_rows(10, seed=3)
LOSSES: list[dict[str, Any]] = [
    {"loss": "ppo"},
    {"loss": "ppo", "old_logprobs": "sampler"},
    {"loss": "ppo", "entropy_bonus": 0.1},
    {"loss": "ppo", "aggregation": "turn", "dual_clip": 1.2},
    {"loss": "ppo", "aggregation": "dialogue"},
    {"loss": "ppo", "aggregation": "dialogue-sum-constant", "dialogue_token_limit": 30},
    {"loss": "gspo", "aggregation": "dialogue", "clip_low": 0.05, "clip_high": 0.05},
    {"loss": "gspo", "gspo_level": "turn", "clip_low": 0.05, "clip_high": 0.05},
    {"loss": "cispo"},
    {"loss": "reinforce", "aggregation": "dialogue"},
    {"loss": "sft", "choose": "all"},
]
CUTS: list[dict[str, Any]] = [
    {"micro_batch_dialogues": 1},
    {"micro_batch_dialogues": 2},
    {"micro_batch_dialogues": 3},
    {"micro_batch_dialogues": 7},
    {"micro_batch_dialogues": 1000},
    {"micro_batch_tokens": 1},  # one sequence at a time: no padding anywhere
    {"micro_batch_tokens": 40, "head_chunk_tokens": 5},
    {"micro_batch_tokens": 10_000, "head_chunk_tokens": 1},
    {"layout": "packed", "micro_batch_tokens": 10_000},
    {"layout": "packed", "micro_batch_tokens": 40, "head_chunk_tokens": 5},
    {"layout": "packed", "micro_batch_dialogues": 3, "head_chunk_tokens": 64},
]


def moved(model: Any) -> Any:
    """A copy of ``model`` some steps away, so that ratios differ from 1 and clips bind."""
    other = deepcopy(model)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in other.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter += (0.03 * noise).to(parameter.dtype)
    return other


def step_gradients(old: Any, new: Any, data: TrainingData, config: UpdateConfig) -> tuple[StepSums, Any]:
    """One optimiser step's sums and gradients: pi_old from ``old``, the gradient at ``new``."""
    (step,) = plan_steps(data, config, step=0)
    passes = Passes(old, data, config)
    passes.remember(step.dialogues)
    passes.model = new
    prepare_layout(new, config.layout)
    new.zero_grad()
    sums = passes.accumulate(step.dialogues, step.weights_T, first=False)
    return sums, {name: p.grad.clone() for name, p in new.named_parameters()}


def relative(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> float:
    return max(float((found[n].double() - e).norm() / e.norm().clamp(min=1e-30)) for n, e in expected.items())


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: "-".join(str(value) for value in loss.values()))
def test_every_cut_gives_the_gradients_of_the_reference(loss: dict[str, Any], tmp_path: Path) -> None:
    old = tiny_model("qwen3" if loss["loss"] == "ppo" else "llama", dtype=torch.float64)
    new = moved(old)
    path = write_advantages(tmp_path / "a.parquet", ROWS)
    value: list[float] = []

    def reference() -> torch.Tensor:
        result = reference_loss(new, old, stored(path), UpdateConfig(**loss))
        value.append(result.item())
        return result

    expected = gradients(new, reference)
    for cut in CUTS:
        config = UpdateConfig(**loss, **cut)
        sums, found = step_gradients(old, new, read_data(path, config), config)
        assert relative(found, expected) <= 1e-10, cut
        assert sums.loss == pytest.approx(value[0], rel=1e-10), cut


@pytest.mark.parametrize("layout", ["padded", "packed"])
@pytest.mark.parametrize("loss", ["ppo", "gspo"])
def test_every_size_of_forward_pass_and_of_head_chunk_gives_them(loss: str, layout: str, tmp_path: Path) -> None:
    config = UpdateConfig(loss=loss, clip_low=0.05, clip_high=0.05, layout=layout)  # type: ignore[arg-type]
    old = tiny_model(dtype=torch.float64)
    new = moved(old)
    path = write_advantages(tmp_path / "a.parquet", ROWS)
    expected = gradients(new, lambda: reference_loss(new, old, stored(path), config))
    for dialogues, chunk in product((1, 2, 3, 7, 1000), (1, 64, None)):
        cut = config.updated(micro_batch_dialogues=dialogues, head_chunk_tokens=chunk)
        _, found = step_gradients(old, new, read_data(path, cut), cut)
        assert relative(found, expected) <= 1e-10, (dialogues, chunk)


def test_the_head_of_a_large_vocabulary_gives_them_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logprobs, "LARGE_VOCABULARY", 1)
    config = UpdateConfig(head_chunk_tokens=5)
    old = tiny_model(dtype=torch.float64)
    new = moved(old)
    path = write_advantages(tmp_path / "a.parquet", ROWS)
    expected = gradients(new, lambda: reference_loss(new, old, stored(path), config))
    _, found = step_gradients(old, new, read_data(path, config), config)
    assert relative(found, expected) <= 1e-10


def stored(path: Path) -> list[dict[str, Any]]:
    """The rows as the file holds them: log-probs are float32 there."""
    return [{**row, "reply_logprobs": [float(np.float32(value)) for value in row["reply_logprobs"]]} for row in ROWS]


def test_the_clips_bind_in_the_reference_data(tmp_path: Path) -> None:
    """The comparison above would prove little if every ratio were 1."""
    old = tiny_model(dtype=torch.float64)
    config = UpdateConfig(dual_clip=1.2)
    data = read_data(write_advantages(tmp_path / "a.parquet", ROWS), config)
    sums, _ = step_gradients(old, moved(old), data, config)
    assert 0.05 < sums.figures()["clipped_share"] < 0.95
    assert sums.figures()["ratio_max"] > 1.28


@pytest.mark.parametrize("temperature", [0.7, 1.3])
def test_the_sampling_temperature_is_in_ratio_and_weight(temperature: float, tmp_path: Path) -> None:
    old = tiny_model(dtype=torch.float64)
    new = moved(old)
    config = UpdateConfig()
    path = write_advantages(tmp_path / "a.parquet", ROWS, sampling={"temperature": temperature})
    expected = gradients(new, lambda: reference_loss(new, old, stored(path), config, temperature))
    _, found = step_gradients(old, new, read_data(path, config), config)
    assert relative(found, expected) <= 1e-10


def test_float32_agrees_with_float64_to_its_precision(tmp_path: Path) -> None:
    exact = tiny_model(dtype=torch.float64)
    exact_new = moved(exact)
    path = write_advantages(tmp_path / "a.parquet", ROWS)
    value: list[float] = []

    def reference() -> torch.Tensor:
        result = reference_loss(exact_new, exact, stored(path), UpdateConfig())
        value.append(result.item())
        return result

    expected = gradients(exact_new, reference)
    for cut in CUTS:
        config = UpdateConfig(**cut)
        old, new = deepcopy(exact).float(), deepcopy(exact_new).float()
        sums, found = step_gradients(old, new, read_data(path, config), config)
        assert relative(found, expected) <= 1e-5, cut
        assert sums.loss == pytest.approx(value[0], abs=1e-6), cut


def test_a_divergence_pulls_towards_the_reference_policy(tmp_path: Path) -> None:
    """k2 and k3 against d^2/2 and e^d - 1 - d by hand, over the same tokens."""
    policy, anchor = tiny_model(dtype=torch.float64), tiny_model(seed=9, dtype=torch.float64)
    path = write_advantages(tmp_path / "a.parquet", ROWS)
    for name in ("k2", "k3"):
        config = UpdateConfig(loss="reinforce", kl_coefficient=0.3, kl_loss=name, reference=tmp_path)  # type: ignore[arg-type]
        data = read_data(path, config)
        (step,) = plan_steps(data, config, step=0)
        losses = []
        for reference in (anchor, None):
            policy.zero_grad()
            passes = Passes(policy, data, config, reference)
            losses.append(passes.accumulate(step.dialogues, step.weights_T, first=True).loss)
        own, other = Passes(policy, data, config), Passes(anchor, data, config)
        own.remember(step.dialogues)
        other.remember(step.dialogues)
        difference = other._initial_T - own._initial_T
        by_hand = difference.square() / 2 if name == "k2" else difference.exp() - 1 - difference
        assert losses[0] - losses[1] == pytest.approx(0.3 * float(by_hand.mean()), rel=1e-9)


def test_more_padding_rows_change_nothing(tmp_path: Path) -> None:
    # Field case 15, second half: dialogues that carry no advantage count for nothing.
    config = UpdateConfig()
    model = tiny_model(dtype=torch.float64)
    extra = [{**row, "group_id": "z" + row["group_id"], "advantage": None} for row in ROWS[:8]]
    results = []
    for number, rows in enumerate((ROWS, ROWS + extra)):
        data = read_data(write_advantages(tmp_path / f"{number}.parquet", rows), config)
        results.append(step_gradients(model, moved(model), data, config)[1])
    assert relative(results[1], results[0]) == 0.0
