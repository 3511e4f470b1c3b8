"""The exact gradient is one, and the variance study measures estimates of it."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dialrl.environment.demo.planner import solve
from dialrl.environment.demo.scenario import scenarios
from dialrl.errors import OutputExistsError, UsageError
from dialrl.lab.config import FastConfig
from dialrl.lab.fast import training_seats, world_of
from dialrl.lab.fast_policy import weak_start
from dialrl.lab.studies_config import VarianceConfig
from dialrl.lab.studies_exact import ExactWorld, exact_world
from dialrl.lab.studies_figures import variance_figures
from dialrl.lab.studies_variance import policy_after, run_variance

TINY = VarianceConfig(presets=("mica", "grpo"), updates=(0,), batches=6, groups=4, samples=4, turn_limit=3)


@pytest.fixture(scope="module")
def world() -> ExactWorld:
    return exact_world(3)


def test_the_exact_gradient_is_the_slope_of_the_exact_value(world: ExactWorld) -> None:
    weights = weak_start() + 0.1 * np.random.default_rng(1).normal(size=weak_start().shape)
    gradient = world.gradient(weights)
    for seed in range(3):
        direction = np.random.default_rng(seed).normal(size=weights.shape)
        slope = (world.value(weights + 1e-5 * direction) - world.value(weights - 1e-5 * direction)) / 2e-5
        assert (gradient * direction).sum() == pytest.approx(slope, rel=1e-6)


def test_the_exact_value_is_what_dialogues_bring_on_average(world: ExactWorld) -> None:
    weights = policy_after(1, 1.0, world)
    run = FastConfig(groups=64, samples=40, turn_limit=3)
    gains = np.concatenate([world_of(3, 0).play(weights, training_seats(i, run)).gain_D for i in range(4)])
    assert gains.mean() == pytest.approx(world.value(weights), abs=4 * gains.std() / len(gains) ** 0.5)


def test_steps_along_the_exact_gradient_approach_the_optimum_from_below(world: ExactWorld) -> None:
    values = [world.value(policy_after(updates, 1.0, world)) for updates in (0, 2, 10)]
    assert values == sorted(values)
    best = solve(scenarios("train"), 3).optimum
    assert 0.5 * best < values[-1] < best


def test_figures_of_two_gradients() -> None:
    """(1, 0) and (1, 2) against (1, 0): mean (1, 1), trace 2, the mean's own noise off: 2 - 2 / 2 = 1."""
    batches = pa.table({"norm": [1.0, 5**0.5], "dot_mean": [1.0, 3.0], "cosine": [1.0, 1 / 5**0.5]})
    places = pa.table({"mean": [1.0, 1.0], "std": [0.0, 2**0.5], "exact": [1.0, 0.0]})
    found = variance_figures(batches, places)
    assert found["noise"] == pytest.approx(2.0)
    assert found["cosine"] == pytest.approx((1 + 1 / 5**0.5) / 2)
    assert found["cosine_of_mean"] == pytest.approx(1 / 2**0.5)
    assert found["coordinate_snr"] == pytest.approx(1 / 2**0.5)
    assert found["cosine_low"] <= found["cosine"] <= found["cosine_high"]


def test_the_study_writes_its_tables_and_measures_only_what_is_missing(tmp_path: Path) -> None:
    summary = run_variance(tmp_path, TINY)
    rows = pq.read_table(tmp_path / "variance.parquet").to_pylist()
    assert [(row["preset"], row["batch"]) for row in rows] == [(p, b) for p in ("mica", "grpo") for b in range(6)]
    assert {row["updates"] for row in rows} == {0}
    assert all(0 < row["cosine"] < 1 and row["norm"] > 0 for row in rows)
    places = pq.read_table(tmp_path / "coordinates.parquet").to_pylist()
    means = {(r["preset"], r["feature"], r["choice"]): r["mean"] for r in places}
    size = sum(mean**2 for (preset, *_), mean in means.items() if preset == "mica")
    assert size == pytest.approx(np.mean([row["dot_mean"] for row in rows if row["preset"] == "mica"]))
    with pytest.raises(OutputExistsError):
        run_variance(tmp_path, TINY)
    wider = run_variance(tmp_path, TINY.updated(updates=(0, 1)), resume=True)
    assert (summary.counts["measured_now"], wider.counts["measured_now"]) == (1, 1)
    assert pq.read_table(tmp_path / "variance.parquet").slice(0, 12).to_pylist() == rows


def test_an_unknown_preset_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Unknown preset 'mika'"):
        run_variance(tmp_path / "study", TINY.updated(presets=("mika",)))
    assert not (tmp_path / "study").exists()
