"""Total reward, endings and share of optimum of dialogues, worked out by hand on one axis of deficit -9."""

import pytest
from tests.scripted import names, register
from tests.trajectory_files import judged, write

from dialrl.errors import InputError
from dialrl.evaluate.config import DialogueConfig
from dialrl.evaluate.dialogue import evaluate_dialogues, evaluate_policy, mean_scores, rollout_config
from dialrl.evaluate.reference import reference_values
from dialrl.state.rules import StopRules
from dialrl.testing import ScriptedEnvironment, ScriptedJudge, scripted_policy
from dialrl.trajectory.lineage import Lineage, StageRecord
from dialrl.trajectory.reader import TrajectoryFile
from dialrl.trajectory.rows import rows_to_table
from dialrl.trajectory.writer import TrajectoryWriter

FEW = {"resamples": 200}


def evaluated(path, rows, **options):
    write(path, rows, "rollout", "judge")
    return evaluate_dialogues(path, DialogueConfig(**{**FEW, **options}))


# Zone distance on one axis is how far the position lies below -1: -9 -> 8, -6 -> 5, -0.5 -> 0.
POSITIONS = {"a": [(-8.0, -6.0), (-7.0, -9.0)], "b": [(-0.5,)]}


def test_the_score_is_the_mean_of_the_distance_taken_away(tmp_path):
    summary = evaluated(tmp_path / "j.parquet", judged(POSITIONS))
    # 8 - 5, 8 - 8 and 8 - 0.
    assert summary.figures["score"] == pytest.approx((3 + 0 + 8) / 3)
    assert summary.figures["mean_turns"] == pytest.approx(5 / 3)
    assert summary.counts == {
        "dialogues": 3,
        "scenarios": 2,
        "turns": 5,
        "missing_judgements": 0,
        "broken_dialogues": 0,
        "unjudged_dialogues": 0,
    }
    assert summary.figures["endings"] == {"turn_limit": 3}


def test_reward_by_turn_rests_on_the_dialogues_that_had_that_turn(tmp_path):
    figures = evaluated(tmp_path / "j.parquet", judged(POSITIONS)).figures
    assert figures["reward_by_turn"] == {
        "0": {"mean": pytest.approx((1 + 2 + 8) / 3), "dialogues": 3},
        "1": {"mean": pytest.approx((2 - 2) / 2), "dialogues": 2},
    }


def test_the_interval_draws_scenarios_and_holds_the_score(tmp_path):
    figures = evaluated(tmp_path / "j.parquet", judged(POSITIONS), resamples=2000).figures
    interval = figures["intervals"]["score"]
    assert interval["low"] == pytest.approx(1.5)  # scenario a alone
    assert interval["high"] == pytest.approx(8.0)  # scenario b alone
    assert interval["low"] < figures["score"] < interval["high"]


def test_turns_after_the_stop_count_only_when_asked_for(tmp_path):
    rows = [{**row, "stop_turn": 0} for row in judged({"a": [(-8.0, -2.0, -9.0)]})]
    stopped = evaluated(tmp_path / "j.parquet", rows)
    assert (stopped.figures["score"], stopped.figures["mean_turns"]) == (1.0, 1.0)
    whole = evaluated(tmp_path / "j.parquet", rows, until="end")
    assert (whole.figures["score"], whole.figures["mean_turns"]) == (0.0, 3.0)


def test_a_stop_rule_that_was_replayed_names_the_ending(tmp_path):
    rows = [{**row, "stop_turn": 1} for row in judged({"a": [(-8.0, 0.0, -9.0)]})]
    figures = evaluated(tmp_path / "j.parquet", rows, stop=StopRules(min_turns=2)).figures
    assert (figures["endings"], figures["success_rate"]) == ({"success": 1}, 1.0)
    figures = evaluated(tmp_path / "j.parquet", rows, until="end").figures
    assert (figures["endings"], figures["success_rate"]) == ({"turn_limit": 1}, 0.0)


def test_broken_and_unjudged_dialogues_are_counted_and_left_out(tmp_path):
    rows = judged({"a": [(-8.0,), (-7.0,), (-6.0,)]})
    rows[0] |= {"status": "error", "end_reason": "error"}
    rows[1] |= {"judge_status": "missing", "increment": None}
    summary = evaluated(tmp_path / "j.parquet", rows)
    assert summary.figures["score"] == 3.0
    assert summary.counts["dialogues"] == 1
    assert (summary.counts["broken_dialogues"], summary.counts["unjudged_dialogues"]) == (1, 1)
    assert summary.counts["missing_judgements"] == 1


def test_a_missing_judgement_keeps_the_position_and_the_dialogue(tmp_path):
    rows = judged({"a": [(-8.0, -8.0, -6.0)]})
    rows[1] |= {"judge_status": "missing", "increment": None, "position_estimated": True}
    summary = evaluated(tmp_path / "j.parquet", rows)
    assert (summary.figures["score"], summary.counts["missing_judgements"]) == (3.0, 1)


def test_nothing_to_score_is_an_error_with_the_counts(tmp_path):
    rows = [{**row, "status": "error"} for row in judged({"a": [(-8.0,), (-7.0,)]})]
    with pytest.raises(InputError, match=r"No dialogue of '.*j\.parquet' can be scored: 2 broke, 0 have no judgement"):
        evaluated(tmp_path / "j.parquet", rows)


def test_a_file_without_grades_is_refused(tmp_path):
    write(
        tmp_path / "r.parquet", [{key: row[key] for key in ("group_id", "sample", "turn")} for row in judged(POSITIONS)]
    )
    with pytest.raises(InputError, match="this needs a file that has been through 'judge'"):
        evaluate_dialogues(tmp_path / "r.parquet")


# share of optimum ---------------------------------------------------------------------------------------------------


RULES = StageRecord("judge", options={"judge": "demo", "judge_options": {}})
WARMTH = StageRecord("judge", options={"judge": "warmth", "judge_options": {}})


def with_split(path, split, *graded, **options):
    table = rows_to_table(judged(POSITIONS))
    with TrajectoryWriter(path, table.schema) as writer:
        writer.write(table)
        writer.finish(Lineage((StageRecord("rollout", options={"split": split, **options}), *(graded or (RULES,)))))
    return path


def test_the_share_is_linear_between_silence_and_the_optimum(tmp_path):
    reference = reference_values("demo", "test")
    figures = evaluate_dialogues(with_split(tmp_path / "j.parquet", "test"), DialogueConfig(**FEW)).figures
    span = reference.optimum - reference.silent
    assert figures["share"] == pytest.approx((figures["score"] - reference.silent) / span)
    low, high = (figures["intervals"]["score"][side] for side in ("low", "high"))
    assert figures["share_interval"]["low"] == pytest.approx((low - reference.silent) / span)
    assert figures["share_interval"]["high"] == pytest.approx((high - reference.silent) / span)
    assert figures["reference"]["optimum"]["share"] == 1.0
    assert figures["reference"]["silent"]["share"] == 0.0
    assert figures["reference"]["myopic"]["score"] == reference.myopic


@pytest.mark.parametrize("split", ["dev", None])
def test_without_a_known_split_there_is_no_share(tmp_path, split):
    figures = evaluate_dialogues(with_split(tmp_path / "j.parquet", split), DialogueConfig(**FEW)).figures
    assert "share" not in figures
    assert reference_values("support", "test") is None


def passed_on(judge):
    return StageRecord("judge", options={"judge": judge}, details={"passed_on": True})


@pytest.mark.parametrize(
    ("graded", "rollout", "known"),
    [
        ([RULES], {}, True),
        ([RULES, StageRecord("judge", options={"judge": "safety"})], {}, True),
        ([WARMTH], {}, False),
        ([StageRecord("judge", options={"judge": "demo", "judge_options": {"noise": 0.2}})], {}, False),
        ([passed_on("demo")], {"grading": "live", "judge": "demo"}, True),
        ([passed_on("demo")], {"grading": "live", "judge": "warmth"}, False),
        ([RULES], {"grading": "live", "judge": "warmth"}, True),
        ([passed_on("demo")], {}, False),
    ],
)
def test_only_grades_of_the_judge_behind_the_optimum_have_a_share_of_it(tmp_path, graded, rollout, known):
    path = with_split(tmp_path / "j.parquet", "test", *graded, **rollout)
    figures = evaluate_dialogues(path, DialogueConfig(**FEW)).figures
    assert ("share" in figures, "reference" in figures) == (known, known)
    assert ("share" in mean_scores(path, until="stop")) == known


def test_mean_scores_are_those_of_the_evaluation(tmp_path):
    path = with_split(tmp_path / "j.parquet", "train")
    figures = evaluate_dialogues(path, DialogueConfig(**FEW)).figures
    assert mean_scores(path, until="stop") == pytest.approx(
        {name: figures[name] for name in ("score", "mean_turns", "share")}
    )
    broken = [{**row, "status": "error"} for row in judged(POSITIONS)]
    assert mean_scores(write(path, broken), until="stop") == {"score": None, "mean_turns": None}


# a policy -----------------------------------------------------------------------------------------------------------


def test_a_policy_talks_is_judged_and_scored_and_the_files_stay(tmp_path, monkeypatch):
    register(
        monkeypatch,
        environment=ScriptedEnvironment(["Hello.", "Go on."], scenarios=names(3)),
        judge=ScriptedJudge([{"C.Prog": 1}, {}], deficit=[-6.0, -1.0, -1.0]),
    )
    config = DialogueConfig(environment="scripted", judge="scripted", samples=2, **FEW)
    summary = evaluate_policy(scripted_policy(["Hm."]), tmp_path, config)
    assert summary.figures["score"] == pytest.approx(1.0)  # 5 - 4 on the one axis below the zone
    assert summary.figures["endings"] == {"farewell": 6}
    assert (summary.counts["dialogues"], summary.counts["scenarios"], summary.counts["turns"]) == (6, 3, 12)
    assert summary.figures["reply_tokens_per_turn"] == 4.0
    assert TrajectoryFile.open(tmp_path / "judge.parquet").shards[0].parent is not None
    again = evaluate_policy(scripted_policy(["Hm."]), tmp_path, config, resume=True)
    assert again.to_json() == summary.to_json()


def test_an_evaluation_holds_every_scenario_of_its_split_unless_told_otherwise():
    assert rollout_config(DialogueConfig()).groups == 72
    made = rollout_config(DialogueConfig(groups=5, max_turns=3, temperature=0.5, seed=9))
    assert (made.groups, made.max_turns, made.temperature, made.seed, made.split) == (5, 3, 0.5, 9, "test")
    assert made.grading == "after"
