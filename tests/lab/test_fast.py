from pathlib import Path

import numpy as np
import pytest

from dialrl.environment.demo.acts import Act
from dialrl.environment.demo.lines import Symbol
from dialrl.environment.demo.planner import DemoReference
from dialrl.environment.demo.policy_data import WEAK
from dialrl.environment.demo.rules import State
from dialrl.lab.config import FastConfig
from dialrl.lab.fast import play_fast, run_fast
from dialrl.lab.fast_policy import CHOICES, FEATURES, Visible, encode, policy_gradient, probabilities, weak_start
from dialrl.trajectory.reader import TrajectoryFile

SMALL = FastConfig(iterations=2, groups=4, samples=4, turn_limit=6, evaluate_every=2, evaluate_repeats=1)


@pytest.mark.parametrize(
    ("seen", "mixture"),
    [
        (Visible(State(0), Symbol.OPENING, 0), WEAK.other),
        (Visible(State(1, trust=1), Symbol.WARM, 3), WEAK.warm),
        (Visible(State(2, revealed=True), Symbol.EASED, 5), WEAK.told),
    ],
)
def test_the_start_is_the_weak_mixture(seen: Visible, mixture: dict[Act, float]) -> None:
    chances = dict(zip(CHOICES, probabilities(weak_start(), encode(seen)), strict=True))
    for act, weight in mixture.items():
        assert chances[act] == pytest.approx(weight / sum(mixture.values()), abs=1e-3)


def test_the_gradient_is_that_of_the_mean_weighted_log_probability() -> None:
    draws = np.random.default_rng(0)
    weights, features = draws.normal(size=(FEATURES, len(CHOICES))), draws.integers(0, 2, (5, FEATURES)).astype(float)
    chosen, advantage = draws.integers(0, len(CHOICES), 5), np.array([1.0, -2.0, np.nan, 0.5, 3.0])

    def objective(at: np.ndarray) -> float:
        logs = [np.log(probabilities(at, row)[choice]) for row, choice in zip(features, chosen, strict=True)]
        return float(np.nanmean(advantage * logs))

    gradient = policy_gradient(weights, features, chosen, advantage)
    for place in [(0, 0), (3, 2), (FEATURES - 1, 5)]:
        step = np.zeros_like(weights)
        step[place] = 1e-5
        slope = (objective(weights + step) - objective(weights - step)) / 2e-5
        assert gradient[place] == pytest.approx(slope, abs=1e-6)


def test_no_known_advantage_gives_no_gradient() -> None:
    nothing = policy_gradient(weak_start(), np.ones((2, FEATURES)), np.array([0, 1]), np.full(2, np.nan))
    assert not nothing.any()


def test_a_run_writes_ordinary_files_and_is_a_function_of_its_seed(tmp_path: Path) -> None:
    first, again = run_fast(tmp_path / "a", SMALL), run_fast(tmp_path / "b", SMALL)
    np.testing.assert_array_equal(first.weights_FA, again.weights_FA)
    assert [point.iteration for point in first.curve] == [0, 2]
    file = TrajectoryFile.open(tmp_path / "a" / "0001" / "advantage.parquet", stage="advantage")
    dialogues = set(file.read(["dialogue_id"])["dialogue_id"].to_pylist())
    assert len(dialogues) == 16
    assert (tmp_path / "a" / "0001" / "advantage.parquet").read_bytes() == (
        tmp_path / "b" / "0001" / "advantage.parquet"
    ).read_bytes()


def test_missing_judgements_are_data(tmp_path: Path) -> None:
    run_fast(tmp_path, SMALL.updated(iterations=1, judge_missing=0.2, judge_noise=0.1))
    table = TrajectoryFile.open(tmp_path / "0000" / "advantage.parquet").read(["judge_status", "reward", "increment"])
    missing = table.filter([status == "missing" for status in table["judge_status"].to_pylist()])
    assert 0 < missing.num_rows < table.num_rows
    assert missing["reward"].null_count == missing["increment"].null_count == missing.num_rows


def test_delayed_credit_leaves_the_myopic_plateau_and_immediate_credit_does_not() -> None:
    known = DemoReference(silent=0.0, myopic=3.2474, optimum=12.2955, clairvoyant=12.6787)  # docs/demo-world.md
    config = FastConfig(iterations=30)
    delayed, immediate = play_fast(config, known), play_fast(config.updated(gamma=0.0), known)
    myopic = known.share(known.myopic)
    assert delayed.curve[0].share < 0.25
    assert delayed.curve[-1].share > 0.6 > myopic + 0.1
    assert immediate.curve[-1].share < myopic + 0.1
