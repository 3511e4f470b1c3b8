"""Grading a file: failures are rows, one assessment a group, stop rules replayed, kills survived."""

import json

import pytest
from tests.scripted import LINES, dialogues, names, register, replies_by_seed, settings, user_seeds
from tests.trajectory_files import read, turns, write

from dialrl.errors import FailureThresholdError, InputError, OutputExistsError, UsageError
from dialrl.judge.config import JudgeConfig
from dialrl.judge.grading import FAILED_DIALOGUE, JUDGE_COLUMNS, NO_REPLY
from dialrl.judge.stage import judge_dialogues
from dialrl.rollout.stage import roll_out
from dialrl.seeds import seed_for
from dialrl.state.rules import StopRules
from dialrl.testing import Fault, ScriptedEnvironment, ScriptedJudge, scripted_policy
from dialrl.trajectory.lineage import run_file
from dialrl.trajectory.parts import Parts
from dialrl.trajectory.reader import TrajectoryFile

DEFICIT = [-6.0, -8.0, -4.0]


def environment(*faults, count=4, **options):
    return ScriptedEnvironment(LINES, scenarios=names(count), faults=faults, **options)


@pytest.fixture
def rollout(tmp_path, monkeypatch):
    """Four groups of two dialogues of three turns."""
    register(monkeypatch, environment=environment())
    roll_out(scripted_policy(replies_by_seed), tmp_path / "rollout.parquet", settings(4, 2))
    return tmp_path / "rollout.parquet"


def graded(rollout, monkeypatch, judge=None, name="judge.parquet", **options):
    """The rows after grading by ``judge``, and the summary."""
    overwrite, resume, slim = (options.pop(key, False) for key in ("overwrite", "resume", "slim"))
    register(monkeypatch, environment=environment(), judge=judge or ScriptedJudge([{"C.Prog": 1}, {"P.Neg": -1}]))
    config = JudgeConfig(**{"judge": "scripted", "max_missing": 1.0, **options})
    output = rollout.with_name(name)
    summary = judge_dialogues(rollout, output, config, overwrite=overwrite, resume=resume, slim=slim)
    return read(output), summary


def columns(row, *wanted):
    return tuple(row[name] for name in wanted)


# verdicts become columns --------------------------------------------------------------------------------------------


def test_levels_become_increments_and_positions_by_the_rubrics_scores(rollout, monkeypatch):
    # support: C.Prog 1 scores +1, P.Neg -1 scores -3 (docs/state-model.md).
    rows, summary = graded(rollout, monkeypatch)
    first, second, third = dialogues(rows)["scenario-0/0"]
    assert [row["deficit"] for row in (first, second, third)] == [DEFICIT] * 3
    assert first["increment"] == [1.0, 0.0, 0.0]
    assert first["position"] == [-5.0, -8.0, -4.0]
    assert second["increment"] == third["increment"]
    assert second["position"] == [a + b for a, b in zip(first["position"], second["increment"], strict=True)]
    assert columns(first, "judge_status", "judge_error", "position_estimated", "stop_turn") == ("ok", None, False, None)
    given = {grade["indicator"]: grade["level"] for grade in first["grades"]}
    assert given == {"C.Prog": 1, "C.Neg": 0, "A.Prog": 0, "A.Neg": 0, "P.Prog": 0, "P.Neg": 0}
    assert first["grades"][0]["evidence"] == first["reply"]
    assert summary.counts == {"judgements_ok": 24}


def test_everything_of_the_rollout_is_copied(rollout, monkeypatch):
    rows, _ = graded(rollout, monkeypatch)
    before = read(rollout)
    assert [{key: row[key] for key in before[0]} for row in rows] == before


def test_the_judge_sees_the_dialogue_up_to_the_reply_it_grades(rollout, monkeypatch):
    seen = []

    class Watching(ScriptedJudge):
        async def grade(self, scenario, dialogue, turn, seed):
            seen.append((scenario.scenario_id, turn, [(m.role, m.content) for m in dialogue]))
            return await super().grade(scenario, dialogue, turn, seed)

    rows, _ = graded(rollout, monkeypatch, Watching())
    first, second, _ = dialogues(rows)["scenario-2/1"]
    wanted = [("user", "Hello."), ("assistant", first["reply"]), ("user", "Go on."), ("assistant", second["reply"])]
    assert ("scenario-2", 1, wanted) in seen


def test_one_assessment_a_group_and_one_call_a_turn_each_with_its_seed(rollout, monkeypatch):
    judge = ScriptedJudge()
    graded(rollout, monkeypatch, judge, seed=3, batch_rows=1)
    assessed = [(call.scenario, call.seed) for call in judge.calls if call.what == "assess"]
    assert assessed == [(name, seed_for(3, 0, name, 0, 0, "assess")) for name in names(4)]
    seeds = [call.seed for call in judge.calls if call.what == "grade"]
    assert sorted(seeds) == sorted(
        seed_for(3, 0, name, sample, turn, "judge") for name in names(4) for sample in (0, 1) for turn in range(3)
    )


def test_stop_rules_are_replayed_and_the_turn_stands_on_every_row(rollout, monkeypatch):
    judge = ScriptedJudge([{"C.Prog": 1}], deficit=[-2.0, 0.0, 0.0])
    rows, _ = graded(rollout, monkeypatch, judge, stop=StopRules(min_turns=2))
    assert [row["stop_turn"] for row in rows] == [1] * 24
    assert [row["turn"] for row in rows][:3] == [0, 1, 2]  # the turns after the stop stay, and are graded
    assert rows[2]["judge_status"] == "ok"


# failures -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("missing", "as scripted"),
        ("raise", "ScriptedFailureError: grade, scenario 'scenario-1', turn 1: as scripted"),
        ("malformed", "out_of_range: 'C.Prog' has no level 99; expected one of [0, 1, 2]"),
        ("hang", "timeout"),
    ],
)
def test_a_judgement_that_fails_is_missing_and_never_a_number(rollout, monkeypatch, kind, error):
    judge = ScriptedJudge([{"A.Prog": 1}], faults=[Fault(kind, "scenario-1", turn=1)])
    rows, summary = graded(rollout, monkeypatch, judge, call_timeout_seconds=0.05)
    first, second, third = dialogues(rows)["scenario-1/0"]
    assert second["judge_error"].startswith(error)
    assert columns(second, "judge_status", "increment", "grades", "position_estimated") == ("missing", None, None, True)
    assert first["position"] == second["position"] == [-6.0, -7.0, -4.0]
    assert columns(third, "judge_status", "position", "position_estimated") == ("ok", [-6.0, -6.0, -4.0], False)
    assert summary.counts == {"judgements_missing": 2, "judgements_ok": 22}
    assert "2 judgements are missing; they stay null and train nothing." in summary.warnings


def test_a_judge_that_says_0_says_0(rollout, monkeypatch):
    rows, _ = graded(rollout, monkeypatch, ScriptedJudge([{}]))
    assert columns(rows[0], "judge_status", "increment", "position") == ("ok", [0.0, 0.0, 0.0], DEFICIT)


@pytest.mark.parametrize(
    ("judge", "error"),
    [
        (ScriptedJudge(faults=[Fault("raise", "scenario-1", turn=-1)]), "ScriptedFailureError: assess"),
        (ScriptedJudge(faults=[Fault("hang", "scenario-1", turn=-1)]), "timeout"),
        (ScriptedJudge(deficit=[-1.0, -2.0]), "out_of_range: deficit (-1.0, -2.0)"),
        (ScriptedJudge(deficit=[-1.0, float("nan"), 0.0]), "out_of_range: deficit (-1.0, nan, 0.0)"),
    ],
    ids=["raises", "hangs", "two axes", "NaN"],
)
def test_without_an_initial_deficit_a_groups_judgements_are_missing(rollout, monkeypatch, judge, error):
    rows, _ = graded(rollout, monkeypatch, judge, call_timeout_seconds=0.05)
    for row in (*dialogues(rows)["scenario-1/0"], *dialogues(rows)["scenario-1/1"]):
        assert columns(row, "judge_status", "deficit", "position", "increment", "stop_turn") == ("missing", *[None] * 4)
        assert row["judge_error"].startswith(f"no initial deficit: {error}")
    if "assess" in error:
        assert {row["judge_status"] for row in dialogues(rows)["scenario-0/0"]} == {"ok"}


def test_words_of_a_judge_that_no_file_can_hold_are_mended(rollout, monkeypatch):
    class Garbled(ScriptedJudge):
        async def grade(self, scenario, dialogue, turn, seed):
            verdict = await super().grade(scenario, dialogue, turn, seed)
            if turn == 1:
                raise ValueError("half \ud83d")
            broken = verdict.grades[0].__class__(
                **{**vars(verdict.grades[0]), "evidence": "\udc00", "reasoning": "é🙂"}
            )
            return verdict.__class__((broken, *verdict.grades[1:]), "ok")

    rows, _ = graded(rollout, monkeypatch, Garbled())
    assert columns(rows[0]["grades"][0], "evidence", "reasoning") == ("\ufffd", "é🙂")
    assert rows[1]["judge_error"] == "ValueError: half \ufffd"


def test_the_turns_of_a_failed_dialogue_are_missing_and_nobody_is_asked(tmp_path, monkeypatch):
    seeds = frozenset(user_seeds("scenario-0", 0))
    register(monkeypatch, environment=environment(Fault("raise", "scenario-0", turn=1, seeds=seeds)))
    roll_out(scripted_policy(replies_by_seed), tmp_path / "rollout.parquet", settings(4, 2, max_failed=1.0))
    judge = ScriptedJudge()
    rows, summary = graded(tmp_path / "rollout.parquet", monkeypatch, judge)
    failed = dialogues(rows)["scenario-0/0"]
    assert [columns(row, "judge_status", "judge_error") for row in failed] == [("missing", FAILED_DIALOGUE)] * 2
    assert [columns(row, "deficit", "position") for row in failed] == [(DEFICIT, DEFICIT)] * 2
    assert len([call for call in judge.calls if call.what == "grade"]) == 21
    assert summary.counts["judgements_missing"] == 2


def test_a_row_without_a_reply_has_nothing_to_grade(tmp_path, monkeypatch):
    register(monkeypatch, environment=environment())
    roll_out(scripted_policy(["x"]), tmp_path / "rollout.parquet", settings(4, 2, context_limit_tokens=10))
    rows, _ = graded(tmp_path / "rollout.parquet", monkeypatch)
    assert {columns(row, "judge_status", "judge_error") for row in rows} == {("missing", NO_REPLY)}


def test_the_exit_follows_the_share_of_missing_judgements(rollout, monkeypatch):
    def judge():
        return ScriptedJudge(faults=[Fault("missing", "scenario-0")])

    with pytest.raises(FailureThresholdError, match=r"6 of 24 judgements are missing: more than --max-missing 0\.2"):
        graded(rollout, monkeypatch, judge(), max_missing=0.2)
    assert len(read(rollout.with_name("judge.parquet"))) == 24
    with pytest.raises(FailureThresholdError):
        graded(rollout, monkeypatch, judge(), max_missing=0.2, resume=True)
    _, summary = graded(rollout, monkeypatch, judge(), max_missing=0.25, resume=True)
    assert summary.figures["already_complete"]


# outputs and resuming -----------------------------------------------------------------------------------------------


def test_a_slim_output_reads_as_the_whole_one(rollout, monkeypatch):
    whole, _ = graded(rollout, monkeypatch)
    slim, _ = graded(rollout, monkeypatch, name="slim.parquet", slim=True)
    assert slim == whole
    assert rollout.with_name("slim.parquet").stat().st_size < rollout.with_name("judge.parquet").stat().st_size


@pytest.mark.parametrize("batch_rows", [1, 6, 7, 2048])
def test_blocks_and_concurrency_change_no_byte(rollout, monkeypatch, batch_rows):
    graded(rollout, monkeypatch, name="a.parquet")
    graded(rollout, monkeypatch, name="b.parquet", batch_rows=batch_rows, concurrency=1)
    assert rollout.with_name("a.parquet").read_bytes() == rollout.with_name("b.parquet").read_bytes()


class Killed(BaseException):
    """What stands for kill -9."""


class Dying(ScriptedJudge):
    """Dies at the first grade of scenario 2."""

    async def grade(self, scenario, dialogue, turn, seed):
        if scenario.scenario_id == "scenario-2":
            raise Killed
        return await super().grade(scenario, dialogue, turn, seed)


@pytest.mark.parametrize("batch_rows", [6, 2048])
def test_a_killed_judge_is_resumed_and_asks_only_for_blocks_that_were_not_done(rollout, monkeypatch, batch_rows):
    with pytest.raises(Killed):
        graded(rollout, monkeypatch, Dying(), batch_rows=6)
    assert not rollout.with_name("judge.parquet").exists()
    judge = ScriptedJudge()
    rows, _ = graded(rollout, monkeypatch, judge, batch_rows=batch_rows, resume=True)
    # Blocks of one group each were kept for scenarios 0 and 1; with one block for all none of them fits.
    asked = {call.scenario for call in judge.calls}
    assert asked == ({"scenario-2", "scenario-3"} if batch_rows == 6 else set(names(4)))
    assert rows == graded(rollout, monkeypatch, ScriptedJudge(), name="unbroken.parquet")[0]
    assert not list(rollout.parent.glob(".*.parts"))


def test_a_killed_judge_is_not_resumed_with_other_settings_or_another_input(rollout, monkeypatch):
    with pytest.raises(Killed):
        graded(rollout, monkeypatch, Dying(), batch_rows=6)
    with pytest.raises(UsageError, match="settings differ: seed: 0 -> 1"):
        graded(rollout, monkeypatch, resume=True, seed=1)
    with pytest.raises(OutputExistsError, match="unfinished"):
        graded(rollout, monkeypatch)


def test_a_complete_output_is_left_as_it_is(rollout, monkeypatch):
    graded(rollout, monkeypatch)
    before = rollout.with_name("judge.parquet").stat().st_mtime_ns
    idle = ScriptedJudge()
    _, summary = graded(rollout, monkeypatch, idle, resume=True)
    assert (summary.figures["already_complete"], summary.counts) == (True, {"judgements_ok": 24})
    assert idle.calls == []
    with pytest.raises(UsageError, match="seed: 0 -> 1"):
        graded(rollout, monkeypatch, resume=True, seed=1)
    with pytest.raises(OutputExistsError):
        graded(rollout, monkeypatch)
    assert rollout.with_name("judge.parquet").stat().st_mtime_ns == before


def test_what_a_kill_after_publishing_left_behind_is_removed(rollout, monkeypatch):
    def die(self):
        raise Killed

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(Parts, "clear", die)
        graded(rollout, monkeypatch)
    graded(rollout, monkeypatch, resume=True)
    assert not list(rollout.parent.glob(".*.parts"))


def test_what_a_kill_after_publishing_left_out_is_written_by_resume(rollout, monkeypatch):
    def die(*args, **options):
        raise Killed

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr("dialrl.judge.stage.write_run_file", die)
        graded(rollout, monkeypatch)
    beside = run_file(rollout.with_name("judge.parquet"))
    assert not beside.exists()
    graded(rollout, monkeypatch, resume=True)
    found = json.loads(beside.read_text())
    assert "killed" in found["note"]
    assert found["seconds"] is None
    written = beside.stat().st_mtime_ns
    graded(rollout, monkeypatch, resume=True)
    assert beside.stat().st_mtime_ns == written


# live grades --------------------------------------------------------------------------------------------------------


@pytest.fixture
def live(tmp_path, monkeypatch):
    register(monkeypatch, environment=environment(), judge=ScriptedJudge([{"C.Prog": 1}]))
    config = settings(4, 2, grading="live", judge="scripted")
    roll_out(scripted_policy(replies_by_seed), tmp_path / "rollout.parquet", config)
    return tmp_path / "rollout.parquet"


def test_grades_of_the_rollout_are_passed_on_without_asking(live, monkeypatch):
    judge = ScriptedJudge([{"P.Neg": -2}])
    rows, summary = graded(live, monkeypatch, judge, slim=True)
    assert judge.calls == []
    assert rows == read(live)
    assert (summary.figures["passed_on_from_rollout"], summary.counts) == (True, {"judgements_ok": 24})
    record = TrajectoryFile.open(live.with_name("judge.parquet")).lineage.record("judge")
    assert record.details == {"passed_on": True}


def test_regrading_replaces_them(live, monkeypatch):
    rows, summary = graded(live, monkeypatch, ScriptedJudge([{"P.Prog": 1}]), regrade=True)
    assert rows[0]["increment"] == [0.0, 0.0, 1.0]
    assert not summary.figures["passed_on_from_rollout"]


def test_another_judge_than_the_rollouts_is_not_silently_passed_over(live, monkeypatch):
    with pytest.raises(
        UsageError, match=r"graded in the rollout, by another judge: judge_options: \{\} -> .*--regrade"
    ):
        graded(live, monkeypatch, judge_options={"noise": 0.5})
    with pytest.raises(UsageError, match="judge: scripted -> demo"):
        judge_dialogues(live, live.with_name("judge.parquet"), JudgeConfig(judge="demo"))


# wrong inputs -------------------------------------------------------------------------------------------------------


def test_a_file_without_dialogues_to_grade_is_refused(tmp_path, monkeypatch):
    path = write(tmp_path / "r.parquet", turns(2, reply="x"))
    with pytest.raises(InputError, match="lacks the columns scenario_id, environment, messages"):
        graded(path, monkeypatch)


def test_scenarios_that_the_environment_does_not_know_are_refused(rollout, monkeypatch):
    register(monkeypatch, environment=environment(count=1), judge=ScriptedJudge())
    with pytest.raises(InputError, match="has no scenario 'scenario-1'"):
        judge_dialogues(rollout, rollout.with_name("j.parquet"), JudgeConfig(judge="scripted"))
    assert not rollout.with_name("j.parquet").exists()


def test_an_unknown_judge_is_refused_with_the_nearest(rollout, monkeypatch):
    with pytest.raises(UsageError, match=r"'demos' is none of the judges\. Did you mean 'demo'\?"):
        judge_dialogues(rollout, rollout.with_name("judge.parquet"), JudgeConfig(judge="demos"))


def test_only_judge_columns_are_written(rollout, monkeypatch):
    graded(rollout, monkeypatch)
    new = set(TrajectoryFile.open(rollout.with_name("judge.parquet")).names) - set(TrajectoryFile.open(rollout).names)
    assert new == set(JUDGE_COLUMNS)
