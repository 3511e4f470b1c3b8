"""AdamW over a model: which parameters decay, and how a clipped gradient moves them, by hand."""

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.update.worlds import read_data, tiny_model, turn_row, write_advantages

from dialrl.update.config import UpdateConfig
from dialrl.update.learner import Learner
from dialrl.update.optimizer import build_optimizer
from dialrl.update.plan import plan_steps


def test_weight_decay_shrinks_matrices_and_spares_norms_and_biases() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.LayerNorm(2))
    for parameter in model.parameters():
        torch.nn.init.constant_(parameter, 2.0)
        parameter.grad = torch.zeros_like(parameter)  # so that decay alone moves anything
    build_optimizer(model, UpdateConfig(learning_rate=0.1, weight_decay=0.5)).step()
    after = {name: parameter.flatten()[0].item() for name, parameter in model.named_parameters()}
    assert after == pytest.approx({"0.weight": 1.9, "0.bias": 2.0, "1.weight": 2.0, "1.bias": 2.0})  # 2 - .1 x .5 x 2


@pytest.mark.parametrize(("largest", "moved"), [(1.0, (0.0075, 0.008)), (10.0, (0.0093750, 0.0095238))])
def test_a_gradient_longer_than_the_largest_norm_is_scaled_down_to_it(
    largest: float, moved: tuple[float, float], tmp_path: Path
) -> None:
    """Gradient (3, 4) has norm 5: (.6, .8) at norm 1, and as it is at 10. AdamW's first step is
    rate x g / (|g| + epsilon), here .01 x .6 / .8 and .01 x .8 / 1, or .01 x 3 / 3.2 and .01 x 4 / 4.2.
    """
    config = UpdateConfig(epsilon=0.2, max_gradient_norm=largest, max_mismatch=100.0)
    model = tiny_model()
    for name, parameter in model.named_parameters():
        wanted = torch.zeros_like(parameter)
        if name == "model.norm.weight":
            wanted[:2] = torch.tensor([3.0, 4.0])
        parameter.register_hook(lambda _, wanted=wanted: wanted)
    before = model.get_parameter("model.norm.weight").detach().clone()
    learner = Learner(model, config)
    data = read_data(write_advantages(tmp_path / "a.parquet", [turn_row("g", 0, 0, [1], [2, 3])]), config)
    (row,) = learner.train(data, plan_steps(data, config, step=0), 0.01)
    after = model.get_parameter("model.norm.weight").detach()
    assert row["gradient_norm"] == pytest.approx(5.0)  # before it is scaled
    np.testing.assert_allclose((before - after)[:3], [*moved, 0.0], rtol=0, atol=1e-6)
