"""Dialogues played from tables are the dialogues spoken in text, and credit in memory is that of the files."""

from pathlib import Path

import numpy as np
import pytest

from dialrl.environment.demo.scenario import scenarios
from dialrl.judge.demo import DemoJudge
from dialrl.lab.config import FastConfig
from dialrl.lab.fast import play_fast, run_fast, training_seats
from dialrl.lab.fast_credit import Credit, judge_seed
from dialrl.lab.fast_policy import FEATURES, weak_start
from dialrl.lab.fast_world import FastWorld
from dialrl.lab.spoken import talk, write_judged
from dialrl.trajectory.reader import TrajectoryFile

WORLDS = [(8, 0), (10, 0), (8, 1), (3, 0)]


def some_weights() -> np.ndarray:
    """A policy of its own mind: the weak start with every weight moved."""
    start = weak_start()
    return start + np.random.default_rng(0).normal(size=start.shape)


@pytest.mark.parametrize(("turn_limit", "extra_trust"), WORLDS)
def test_a_played_dialogue_is_the_spoken_one(turn_limit: int, extra_trust: int) -> None:
    config = FastConfig(groups=8, samples=3, turn_limit=turn_limit, extra_trust=extra_trust)
    seats = training_seats(4, config)
    played = FastWorld(turn_limit, extra_trust).play(some_weights(), seats)
    spoken = [talk(some_weights(), seat, turn_limit, extra_trust) for seat in seats]
    assert played.choice_K.tolist() == [choice for each in spoken for choice in each.choice_K]
    assert np.array_equal(played.features_KF, np.stack([row for each in spoken for row in each.features_KF]))
    assert list(played.final_D) == [each.user.state for each in spoken]
    assert [bool(ended) for ended in played.succeeded_D] == [each.user.end_reason == "success" for each in spoken]
    judge = DemoJudge(extra_trust=extra_trust)
    graded = [judge.grade_dialogue(each.seat.scenario, each.user.transcript) for each in spoken]
    levels = [tuple(grade.level for grade in verdict.grades) for dialogue in graded for verdict in dialogue]
    assert [tuple(each) for each in played.levels_K] == levels


def test_worlds_differ_where_they_should() -> None:
    config = FastConfig(groups=16, samples=4)
    seats = training_seats(0, config)
    usual, late, short = (FastWorld(*world).play(weak_start(), seats) for world in ((8, 0), (8, 1), (3, 0)))
    told = [sum(state.revealed for state in each.final_D) for each in (usual, late)]
    assert told[0] > told[1] > 0
    assert short.turn_K.max() == 2
    assert usual.turn_K.max() == 7


def test_the_judged_columns_in_memory_are_those_of_a_file(tmp_path: Path) -> None:
    config = FastConfig(groups=6, samples=3, judge_noise=0.3, judge_missing=0.2, seed=5)
    seats = training_seats(2, config)
    write_judged(tmp_path / "judge.parquet", [talk(weak_start(), seat, 8) for seat in seats], config, iteration=2)
    here = Credit(config).judged(FastWorld(8).play(weak_start(), seats), iteration=2)
    there = TrajectoryFile.open(tmp_path / "judge.parquet").read(here.column_names)
    assert there["increment"].null_count > 0
    for name in here.column_names:
        assert here[name].to_pylist() == there[name].to_pylist(), name


@pytest.mark.parametrize(
    "changes",
    [
        {"preset": "mapo"},
        {"preset": "rloo", "judge_noise": 0.3, "judge_missing": 0.2},
        {"preset": "gigpo"},
        {"preset": "mt-grpo"},
    ],
)
def test_a_run_in_memory_is_the_run_through_files_bit_for_bit(tmp_path: Path, changes: dict[str, object]) -> None:
    config = FastConfig(
        iterations=4, groups=4, samples=4, evaluate_every=2, evaluate_repeats=1, turn_limit=5, learning_rate=2.0
    ).updated(**changes)
    by_files, in_memory = run_fast(tmp_path / "run", config), play_fast(config)
    assert np.array_equal(by_files.weights_FA, in_memory.weights_FA)
    assert by_files.curve == in_memory.curve
    assert not np.array_equal(in_memory.weights_FA, weak_start())
    assert (tmp_path / "run" / "0003" / "advantage.parquet").exists()


def test_the_judge_errs_differently_at_every_iteration_and_alike_on_repetition() -> None:
    seeds = {judge_seed(0, iteration, "a", sample) for iteration in range(3) for sample in range(3)}
    assert len(seeds) == 9
    assert judge_seed(0, 1, "a", 2) == judge_seed(0, 1, "a", 2)


def test_an_exact_judge_and_a_noisy_one_see_the_same_dialogues() -> None:
    exact, noisy = (play_fast(FastConfig(iterations=0, turn_limit=5, judge_noise=noise)) for noise in (0.0, 0.5))
    assert exact.curve == noisy.curve


def test_the_policy_sees_later_turns_alike_beyond_the_last_it_knows() -> None:
    world = FastWorld(15)
    silent = np.zeros((FEATURES, 9))
    silent[:, 0] = 50.0
    episodes = world.play(silent, training_seats(0, FastConfig(groups=1, samples=1)))
    assert episodes.turn_K.tolist() == list(range(15))
    assert np.array_equal(episodes.features_KF[12], episodes.features_KF[14])
    assert not np.array_equal(episodes.features_KF[11], episodes.features_KF[12])
    assert len(scenarios("train")) % 16 == 0
