"""Grading in the rollout and grading its file afterwards give the same grades, positions, stops and outcomes."""

import random

import pytest
from tests.trajectory_files import read

from dialrl.environment.demo.replies import REPLIES
from dialrl.judge.config import JudgeConfig
from dialrl.judge.grading import JUDGE_COLUMNS
from dialrl.judge.stage import judge_dialogues
from dialrl.rollout.config import RolloutConfig
from dialrl.rollout.stage import roll_out
from dialrl.state.rules import StopRules
from dialrl.testing import scripted_policy

KEYS = ("group_id", "sample", "turn")


def some_reply(request):
    """A sentence of the demo world drawn by the request's seed; its slots stay unfilled, as good a reply as any."""
    return random.Random(request.seed).choice(REPLIES[random.Random(request.seed).choice(list(REPLIES))])


def rolled(path, **options):
    roll_out(scripted_policy(some_reply), path, RolloutConfig(groups=4, samples=3, max_turns=5, **options))
    return path


def grades(rows, *more):
    """Judge columns of every turn up to the stop, by key; stop turn and outcome by dialogue."""
    names = (*JUDGE_COLUMNS, *more)
    return {
        tuple(row[key] for key in KEYS): {name: row[name] for name in names}
        for row in rows
        if row["stop_turn"] is None or row["turn"] <= row["stop_turn"]
    }


@pytest.mark.parametrize("judge_options", [{}, {"noise": 0.5, "missing": 0.2}], ids=["exact", "noisy"])
@pytest.mark.parametrize("iteration", [0, 3])
def test_without_stops_the_files_are_equal_in_every_column(tmp_path, judge_options, iteration):
    options = {"judge": "demo", "judge_options": judge_options}
    live = rolled(tmp_path / "live.parquet", grading="live", iteration=iteration, **options)
    rolled(tmp_path / "after.parquet", iteration=iteration)
    judge_dialogues(tmp_path / "after.parquet", tmp_path / "judge.parquet", JudgeConfig(max_missing=1.0, **options))
    after = read(tmp_path / "judge.parquet")
    assert read(live) == after
    assert len({row["judge_status"] for row in after}) == (2 if judge_options else 1)


def test_grading_the_live_file_again_changes_nothing(tmp_path):
    live = rolled(tmp_path / "live.parquet", grading="live", iteration=2, judge_options={"noise": 0.5})
    again = JudgeConfig(regrade=True, judge_options={"noise": 0.5})
    judge_dialogues(live, tmp_path / "again.parquet", again)
    assert read(tmp_path / "again.parquet") == read(live)


def test_with_stops_the_turns_up_to_them_are_equal_and_so_is_the_outcome(tmp_path):
    stop = StopRules(min_turns=3, max_turns=4)
    live = read(rolled(tmp_path / "live.parquet", grading="live", stop=stop))
    rolled(tmp_path / "after.parquet")
    judge_dialogues(tmp_path / "after.parquet", tmp_path / "judge.parquet", JudgeConfig(stop=stop))
    after = read(tmp_path / "judge.parquet")
    assert grades(live) == grades(after)
    assert len(after) > len(live) == len(grades(after))
    assert {row["stop_turn"] for row in live} == {3}
    outcomes = {(r["group_id"], r["sample"]): r["outcome"] for r in live if r["end_reason"] is not None}
    assert outcomes == {(r["group_id"], r["sample"]): r["outcome"] for r in after if r["end_reason"] is not None}
    assert len(set(outcomes.values())) > 1


def test_another_judge_gives_another_outcome_where_it_follows_from_the_grades(tmp_path):
    live = rolled(tmp_path / "live.parquet", grading="live")
    config = JudgeConfig(regrade=True, judge_options={"missing": 1.0}, max_missing=1.0)
    judge_dialogues(live, tmp_path / "again.parquet", config)
    assert None not in {row["outcome"] for row in read(live) if row["end_reason"] is not None}
    assert {row["outcome"] for row in read(tmp_path / "again.parquet")} == {None}
