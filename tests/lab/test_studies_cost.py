"""Branches compare replies to one state, within a budget; the cost study sets them beside presets."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from dialrl.environment.demo.planner import DemoReference
from dialrl.errors import UsageError
from dialrl.lab.config import FastConfig
from dialrl.lab.fast import training_seats, world_of
from dialrl.lab.fast_policy import weak_start
from dialrl.lab.studies_branch import Branching, BranchMethod, rewards
from dialrl.lab.studies_config import CostConfig
from dialrl.lab.studies_cost import best_step, run_cost

TINY = CostConfig(
    methods=("mica", "branch-return", "branch-reward"),
    branches=3,
    groups=4,
    samples=4,
    iterations=2,
    step_sizes=(4.0, 12.0),
    tuning_seeds=1,
    seeds=2,
    turn_limit=4,
    evaluate_every=1,
    evaluate_repeats=1,
)
BOTH: tuple[BranchMethod, ...] = ("branch-return", "branch-reward")


def test_rewards_are_the_increments_that_make_up_the_gain() -> None:
    episodes = world_of(5, 0).play(weak_start(), training_seats(0, FastConfig(turn_limit=5)))
    made = np.add.reduceat(rewards(world_of(5, 0), episodes), episodes.start_D[:-1])
    np.testing.assert_allclose(made, episodes.gain_D, atol=1e-9)


def test_a_dialogue_goes_on_from_where_it_is_told_to() -> None:
    world = world_of(5, 0)
    seats = training_seats(0, FastConfig(turn_limit=5, groups=1, samples=3))
    whole = world.play(weak_start(), seats)
    starts = [(2, int(whole.node_K[whole.start_D[d] + 2])) for d in range(3)]
    rest = world.play(weak_start(), seats, starts)
    assert rest.turn_K.tolist() == [2, 3, 4] * 3
    assert rest.node_K[rest.start_D[:-1]].tolist() == [node for _, node in starts]
    assert world.play(weak_start(), seats, starts, most=1).turn_K.tolist() == [2, 2, 2]


@pytest.mark.parametrize("method", BOTH)
def test_replies_are_compared_within_their_state(method: BranchMethod) -> None:
    made = Branching(method, branches=3, dialogues=16, gamma=0.85).batch(world_of(4, 0), weak_start(), 0, 0)
    states, members = np.unique(made.features_KF, axis=0, return_inverse=True)
    assert made.spent.trained_turns == len(made.advantage_K) == len(made.choice_K)
    assert len(made.advantage_K) % 3 == 0
    totals = np.bincount(members, weights=made.advantage_K)  # pools of three, each with mean 0
    np.testing.assert_allclose(totals, np.zeros(len(states)), atol=1e-9)
    assert np.abs(made.advantage_K).max() > 0.5


@pytest.mark.parametrize(("method", "trunks"), [("branch-return", 2), ("branch-reward", 5)])
def test_a_branch_method_spends_no_more_than_its_budget(method: BranchMethod, trunks: int) -> None:
    """No dialogue of four turns ends early, so a budget of 16 dialogues is 64 turns: 4 + 2 x (4 + 3 + 2 + 1) = 24 a
    trunk with returns, 12 with rewards alone."""
    spent = Branching(method, branches=3, dialogues=16, gamma=0.85).batch(world_of(4, 0), weak_start(), 0, 0).spent
    each = 24 if method == "branch-return" else 12
    assert (spent.policy_turns, spent.trained_turns) == (trunks * each, trunks * 12)
    assert spent.user_turns == (trunks * 24 if method == "branch-return" else trunks * 4)


def test_the_study_writes_its_table_and_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dialrl.lab.studies_cost.reference_of", lambda limit, extra: DemoReference(0.0, 1.0, 4.0, 4.0))
    summary = run_cost(tmp_path, TINY)
    rows = pq.read_table(tmp_path / "cost.parquet").to_pylist()
    assert len(rows) == 3 * (2 + 2) * 3  # methods x (step sizes + seeds) x evaluations
    assert summary.counts == {"runs": 6, "played_now": 12}
    figures = summary.figures["methods"]
    assert figures["mica"]["policy_turns_an_update"] == figures["mica"]["trained_turns_an_update"] == 64.0
    assert figures["branch-return"]["policy_turns_an_update"] <= 64.0
    assert set(summary.figures["comparisons"]) == {"branch-return", "branch-reward"}
    assert "at the edge of those tried" in summary.warnings[0]  # of two step sizes both are
    again = run_cost(tmp_path, TINY.updated(seeds=3), resume=True)
    assert again.counts == {"runs": 9, "played_now": 3}


def test_the_best_step_is_that_of_the_best_mean_final_share() -> None:
    shares = {4.0: (0.1, 0.9), 12.0: (0.6, 0.6)}
    rows = [
        {"method": "m", "step_size": step, "iteration": iteration, "share": share if iteration == 5 else 1.0}
        for step, values in shares.items()
        for share in values
        for iteration in (0, 5)
    ]
    assert best_step(rows, "m") == 12.0


def test_an_unknown_method_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"Unknown method 'branch'.*branch-return"):
        run_cost(tmp_path, TINY.updated(methods=("branch",)))
