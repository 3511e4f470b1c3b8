"""A broken dialogue is a row, never a crash and never a number (field cases 23 and 24)."""

import pytest
from tests.scripted import LINES, dialogues, names, register, replies_by_seed, rolled_out, settings, user_seeds
from tests.trajectory_files import read

from dialrl.errors import FailureThresholdError, UsageError
from dialrl.judge.grading import FAILED_DIALOGUE
from dialrl.rollout.broken import LEFT_OUT
from dialrl.rollout.config import RolloutConfig
from dialrl.rollout.policy import open_policy
from dialrl.rollout.stage import roll_out
from dialrl.seeds import seed_for
from dialrl.testing import Fault, ScriptedEnvironment, ScriptedJudge, scripted_policy


def user(*faults, count=8, lines=LINES, **options):
    return ScriptedEnvironment(lines, scenarios=names(count), faults=faults, **options)


def of_sample_2(kind="raise", **options):
    """A fault of scenario 3, sample 2, in every try unless said otherwise."""
    return Fault(kind, "scenario-3", seeds=frozenset(user_seeds("scenario-3", 2)), **options)


# field case 23 ------------------------------------------------------------------------------------------------------


def test_a_dialogue_that_breaks_on_every_try_is_a_row_and_31_good_ones_are_kept(tmp_path, monkeypatch):
    environment = user(of_sample_2(turn=1))
    register(monkeypatch, environment=environment)
    rows, summary = rolled_out(tmp_path / "r.parquet", settings(8, 4))
    broken = dialogues(rows).pop("scenario-3/2")
    assert [(row["turn"], row["status"], row["end_reason"]) for row in broken] == [
        (0, "error", None),
        (1, "error", "error"),
    ]
    assert broken[1]["error"].startswith("ScriptedFailureError: respond, scenario 'scenario-3', turn 1")
    assert (broken[1]["terminated"], broken[1]["truncated"], broken[1]["outcome"]) == (False, False, None)
    good = [rows for name, rows in dialogues(rows).items() if name != "scenario-3/2"]
    assert len(good) == 31
    assert {row["status"] for one in good for row in one} == {"ok"}
    assert {one[-1]["end_reason"] for one in good} == {"farewell"}
    assert (summary.counts["dialogues"], summary.counts["failed_dialogues"]) == (32, 1)
    assert "1 of 32 dialogues failed; see column error." in summary.warnings
    tries = [call for call in environment.calls if call.what == "opening" and call.scenario == "scenario-3"]
    assert len(tries) == 5  # four dialogues, one of them twice


def test_a_dialogue_that_works_at_the_second_try_is_as_good_as_any(tmp_path, monkeypatch):
    first_try = user_seeds("scenario-3", 2)[:1]
    register(monkeypatch, environment=user(Fault("raise", "scenario-3", turn=1, seeds=frozenset(first_try))))
    rows, summary = rolled_out(tmp_path / "r.parquet", settings(8, 4))
    retried = dialogues(rows)["scenario-3/2"]
    assert [row["status"] for row in retried] == ["ok"] * 3
    assert [row["seed"] for row in retried] == [seed_for(0, 0, "scenario-3", 2, turn, "policy", 1) for turn in range(3)]
    assert summary.counts["failed_dialogues"] == 0


def test_as_many_tries_are_made_as_asked_for(tmp_path, monkeypatch):
    environment = user(Fault("raise"), count=1)
    register(monkeypatch, environment=environment)
    config = settings(1, 1, attempts=4, max_failed=1.0, environment_options={})
    rolled_out(tmp_path / "r.parquet", config)
    assert [call.seed for call in environment.calls] == user_seeds("scenario-0", 0, attempts=4)


def test_the_exit_follows_the_failure_threshold_and_the_file_is_there(tmp_path, monkeypatch):
    register(monkeypatch, environment=user(of_sample_2()))
    path = tmp_path / "r.parquet"
    config = settings(8, 4, max_failed=0.03)
    with pytest.raises(FailureThresholdError, match=r"1 of 32 dialogues failed: more than --max-failed 0\.03") as error:
        roll_out(scripted_policy(replies_by_seed), path, config)
    assert error.value.exit_code == 1
    assert len(dialogues(read(path))) == 32
    with pytest.raises(FailureThresholdError):  # resuming a complete file does not make it pass
        roll_out(scripted_policy(replies_by_seed), path, config, resume=True)
    done = roll_out(scripted_policy(replies_by_seed), path, settings(8, 4, max_failed=1 / 32), resume=True)
    assert done.figures["already_complete"]


def test_a_broken_group_can_be_left_out_of_training(tmp_path, monkeypatch):
    register(monkeypatch, environment=user(of_sample_2()))
    rows, summary = rolled_out(tmp_path / "r.parquet", settings(8, 4, broken_groups="drop"))
    marked = {name: one[-1]["error"] for name, one in dialogues(rows).items() if one[-1]["status"] == "error"}
    assert set(marked) == {f"scenario-3/{sample}" for sample in range(4)}
    assert [name for name, error in marked.items() if error == LEFT_OUT] == [f"scenario-3/{s}" for s in (0, 1, 3)]
    assert (summary.counts["failed_dialogues"], summary.counts["left_out_dialogues"]) == (1, 3)
    assert "3 good dialogues of groups in which one failed are left out of training." in summary.warnings


def test_a_dialogue_that_breaks_before_its_first_reply_is_one_empty_row(tmp_path, monkeypatch):
    register(monkeypatch, environment=user(of_sample_2(turn=-1)))
    rows, _ = rolled_out(tmp_path / "r.parquet", settings(8, 4))
    (only,) = dialogues(rows)["scenario-3/2"]
    assert (only["turn"], only["reply"], only["reply_ids"], only["status"]) == (0, None, None, "error")
    assert (only["scenario_id"], only["environment"]) == ("scenario-3", "scripted")


def test_failed_dialogues_without_replies_are_no_duplicates_of_each_other(tmp_path, monkeypatch):
    register(monkeypatch, environment=user(Fault("raise", turn=-1), count=1))
    _, summary = rolled_out(tmp_path / "r.parquet", settings(1, 4, max_failed=1.0, environment_options={}))
    assert summary.counts["duplicate_dialogues"] == 0


def test_an_end_for_an_unknown_reason_breaks_the_dialogue(tmp_path, monkeypatch):
    register(monkeypatch, environment=user(of_sample_2("malformed", turn=0)))
    rows, _ = rolled_out(tmp_path / "r.parquet", settings(8, 4))
    (only,) = dialogues(rows)["scenario-3/2"]
    assert "ended a dialogue with 'no-such-reason'; known: success," in only["error"]


def test_text_that_no_file_can_hold_breaks_its_dialogue_alone(tmp_path, monkeypatch):
    environment = user(count=2, lines=["Hello.", "broken \ud83d"])
    environment.open = lambda scenario, seed: ScriptedEnvironment.open(
        environment if scenario.scenario_id == "scenario-1" else user(count=2), scenario, seed
    )
    register(monkeypatch, environment=environment)
    rows, summary = rolled_out(tmp_path / "r.parquet", settings(2, 2, max_failed=1.0))
    assert summary.counts["failed_dialogues"] == 2
    broken = dialogues(rows)["scenario-1/0"]
    assert "column 'messages' holds a lone surrogate" in broken[-1]["error"]
    assert dialogues(rows)["scenario-0/1"][-1]["end_reason"] == "farewell"


def test_an_error_message_may_hold_anything(tmp_path, monkeypatch):
    class Session:
        async def opening(self):
            raise ValueError("\x1b[31m [/bold] \ud83d " + "x" * 1000)

    environment = user(count=1)
    environment.open = lambda scenario, seed: Session()
    register(monkeypatch, environment=environment)
    rows, _ = rolled_out(tmp_path / "r.parquet", settings(1, 1, max_failed=1.0))
    assert rows[0]["error"].startswith("ValueError: \x1b[31m [/bold] \ufffd xxx")
    assert len(rows[0]["error"]) == 500


# field case 24 ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", ["block", "stream"])
def test_a_user_that_never_answers_ends_its_dialogue_and_no_other(tmp_path, monkeypatch, schedule):
    def run(name, *faults):
        environment = user(*faults)
        register(monkeypatch, environment=environment)
        policy = scripted_policy(replies_by_seed, schedule=schedule)
        config = settings(8, 1, call_timeout_seconds=0.05)
        rows, summary = rolled_out(tmp_path / name, config, policy)
        return dialogues(rows), summary, environment

    unharmed, _, _ = run("good.parquet")
    found, summary, environment = run("hanging.parquet", Fault("hang", "scenario-5", turn=1))
    hanging = found.pop("scenario-5/0")
    del unharmed["scenario-5/0"]
    assert found == unharmed
    assert [(row["turn"], row["end_reason"], row["status"]) for row in hanging] == [
        (0, None, "ok"),
        (1, "timeout", "ok"),
    ]
    assert (hanging[-1]["terminated"], hanging[-1]["truncated"], hanging[-1]["outcome"]) == (False, True, None)
    assert summary.counts["failed_dialogues"] == 0
    asked = [call for call in environment.calls if call.scenario == "scenario-5" and call.turn == 1]
    assert len(asked) == 1  # a timeout is an ending, not a failure to be tried again


def test_an_opening_that_never_comes_is_a_failure(tmp_path, monkeypatch):
    register(monkeypatch, environment=user(Fault("hang", "scenario-1", turn=-1), count=2))
    config = settings(2, 1, call_timeout_seconds=0.02, max_failed=1.0)
    rows, _ = rolled_out(tmp_path / "r.parquet", config)
    assert dialogues(rows)["scenario-1/0"][0]["error"].startswith("CallTimeoutError")


def test_there_is_always_a_turn_limit(tmp_path, monkeypatch):
    register(monkeypatch, environment=user(count=1, lines=["?"] * 50, turn_limit=4))
    rows, _ = rolled_out(tmp_path / "r.parquet", settings(1, 1))
    assert [row["end_reason"] for row in rows] == [None, None, None, "turn_limit"]
    rows, _ = rolled_out(tmp_path / "s.parquet", settings(1, 1, max_turns=2))
    assert [row["end_reason"] for row in rows] == [None, "turn_limit"]
    assert (rows[-1]["terminated"], rows[-1]["truncated"]) == (False, True)


# live grading -------------------------------------------------------------------------------------------------------


def live(groups=2, samples=2, **options):
    return settings(groups, samples, grading="live", judge="scripted", **options)


def test_a_failed_dialogue_keeps_no_grades_though_its_first_turns_were_graded(tmp_path, monkeypatch):
    seeds = frozenset(user_seeds("scenario-0", 1))
    register(monkeypatch, environment=user(Fault("raise", "scenario-0", turn=1, seeds=seeds), count=2))
    rows, _ = rolled_out(tmp_path / "r.parquet", live(max_failed=1.0))
    broken, good = dialogues(rows)["scenario-0/1"], dialogues(rows)["scenario-0/0"]
    assert [(r["judge_status"], r["judge_error"]) for r in broken] == [("missing", FAILED_DIALOGUE)] * 2
    assert [(r["increment"], r["grades"], r["position_estimated"]) for r in broken] == [(None, None, True)] * 2
    assert [r["position"] for r in broken] == [r["deficit"] for r in broken] == [[-6.0, -8.0, -4.0]] * 2
    assert {r["judge_status"] for r in good} == {"ok"}


def test_a_group_that_is_left_out_loses_its_grades(tmp_path, monkeypatch):
    seeds = frozenset(user_seeds("scenario-0", 1))
    register(monkeypatch, environment=user(Fault("raise", "scenario-0", seeds=seeds), count=2))
    rows, _ = rolled_out(tmp_path / "r.parquet", live(max_failed=1.0, broken_groups="drop"))
    left_out = dialogues(rows)["scenario-0/0"]
    assert {(r["judge_status"], r["judge_error"], r["status"]) for r in left_out} == {("missing", LEFT_OUT, "error")}
    assert {r["judge_status"] for r in dialogues(rows)["scenario-1/0"]} == {"ok"}


def test_without_an_initial_deficit_a_dialogue_cannot_be_graded_live(tmp_path, monkeypatch):
    register(monkeypatch, judge=ScriptedJudge(faults=[Fault("raise", "scenario-1", turn=-1)]))
    rows, summary = rolled_out(tmp_path / "r.parquet", live(max_failed=1.0))
    assert summary.counts["failed_dialogues"] == 2
    failed = dialogues(rows)["scenario-1/0"][0]
    assert "the judge gave no initial deficit, without which nothing is graded: ScriptedFailureError" in failed["error"]
    assert (failed["judge_status"], failed["deficit"], failed["position"]) == ("missing", None, None)


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("missing", "as scripted"),
        ("raise", "ScriptedFailureError: grade, scenario 'scenario-0', turn 1: as scripted"),
        ("malformed", "out_of_range: 'C.Prog' has no level 99"),
        ("hang", "timeout"),
    ],
)
def test_a_judgement_that_fails_is_missing_and_the_dialogue_goes_on(tmp_path, monkeypatch, kind, error):
    register(monkeypatch, judge=ScriptedJudge([{"A.Prog": 1}], faults=[Fault(kind, "scenario-0", turn=1)]))
    rows, summary = rolled_out(tmp_path / "r.parquet", live(call_timeout_seconds=0.05))
    first, second, third = dialogues(rows)["scenario-0/0"]
    assert [r["judge_status"] for r in (first, second, third)] == ["ok", "missing", "ok"]
    assert second["judge_error"].startswith(error)
    assert (second["increment"], second["grades"], second["position_estimated"]) == (None, None, True)
    assert first["position"] == second["position"] == [-6.0, -7.0, -4.0]
    assert third["position"] == [-6.0, -6.0, -4.0]
    assert third["end_reason"] == "farewell"
    assert summary.counts["failed_dialogues"] == 0


def test_members_of_a_group_share_one_initial_deficit(tmp_path, monkeypatch):
    judge = ScriptedJudge()
    register(monkeypatch, judge=judge)
    rolled_out(tmp_path / "r.parquet", live(2, 8, block_dialogues=1))
    assert [call.scenario for call in judge.calls if call.what == "assess"] == ["scenario-0", "scenario-1"]


def test_settings_that_work_for_no_dialogue_end_the_rollout_instead_of_breaking_every_one(tmp_path, policy):
    config = RolloutConfig(environment="support", groups=1, samples=2)
    with pytest.raises(UsageError, match=r"environment_options\.actor\.model"):
        roll_out(open_policy(policy), tmp_path / "r.parquet", config)
    assert not (tmp_path / "r.parquet").exists()
