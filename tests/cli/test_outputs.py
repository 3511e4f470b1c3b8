"""What every command does with its output: refuse, replace, continue, print, or only say what it would do."""

import json
import os
import signal

import pytest
import yaml
from tests.trajectory_files import column, judged, turns, write

from dialrl.errors import FailureThresholdError
from dialrl.returns import stage as returns_stage
from dialrl.trajectory.reader import TrajectoryFile

POSITIONS = {"a": [(-8.0, -6.0), (-7.0, -7.0)], "b": [(-9.0, -8.0), (-5.0, -5.0)]}


@pytest.fixture
def judge(tmp_path):
    return write(tmp_path / "judge.parquet", judged(POSITIONS), "rollout", "judge")


@pytest.fixture
def output(tmp_path):
    return tmp_path / "returns.parquet"


# outputs ------------------------------------------------------------------------------------------------------------


def test_an_existing_output_is_refused_replaced_or_continued_as_asked(run, judge, output):
    assert run("returns", judge, "-o", output).code == 0
    refused = run("returns", judge, "-o", output)
    assert refused.code == 2
    assert "use --overwrite to replace or --resume to continue it" in refused.err
    before = output.stat().st_mtime_ns
    assert run("returns", judge, "-o", output, "--resume").code == 0
    assert output.stat().st_mtime_ns == before
    differs = run("returns", judge, "-o", output, "--resume", "--gamma", "0.5")
    assert differs.code == 2
    assert "gamma: 0.85 -> 0.5" in differs.err
    assert run("returns", judge, "-o", output, "--overwrite", "--gamma", "0.5").code == 0
    assert TrajectoryFile.open(output).lineage.record("returns").options["gamma"] == 0.5
    assert run("returns", judge, "-o", output, "--resume", "--overwrite").code == 0
    assert TrajectoryFile.open(output).lineage.record("returns").options["gamma"] == 0.85


def test_an_existing_output_is_refused_before_a_policy_is_looked_for(run, tmp_path, output):
    output.write_bytes(b"x")
    ended = run("rollout", "--policy", tmp_path / "nowhere", "-o", output)
    assert (ended.code, "exists. Name another one" in ended.err) == (2, True)
    ended = run("rollout", "--policy", tmp_path / "nowhere", "-o", tmp_path / "r.parquet", "--environment", "demoo")
    assert "'demoo' is none of the environments. Did you mean 'demo'?" in ended.err


def test_folders_on_the_way_to_an_output_are_made(run, judge, tmp_path):
    assert run("returns", judge, "-o", tmp_path / "a" / "b" / "returns.parquet").code == 0
    assert len(column(tmp_path / "a" / "b" / "returns.parquet", "return")) == 8


def test_an_output_that_cannot_be_written_is_one_sentence(run, judge, tmp_path):
    (tmp_path / "file").write_text("")
    ended = run("returns", judge, "-o", tmp_path / "file" / "returns.parquet", "--quiet")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("Error: ")
    assert ended.err.count("\n") == 1


def test_a_command_that_needs_an_output_says_so(run, judge):
    ended = run("returns", judge)
    assert ended.code == 2
    assert "Missing: -o / --output" in ended.err
    assert "-o FILE" in run("inspect", judge, "--materialize").err


def test_slim_outputs_and_their_whole_copies(run, judge, output, tmp_path):
    assert run("returns", judge, "-o", output, "--slim", "--quiet").code == 0
    whole = tmp_path / "whole.parquet"
    assert run("inspect", output, "--materialize", "-o", whole, "--json").json["counts"] == {"turns": 8}
    assert TrajectoryFile.open(whole).read() == TrajectoryFile.open(output).read()
    assert run("inspect", output, "--materialize", "-o", whole).code == 2
    assert run("inspect", output, "--materialize", "-o", whole, "--overwrite").code == 0


# --dry-run ----------------------------------------------------------------------------------------------------------


def test_a_dry_run_prints_the_resolved_configuration_and_does_nothing(run, judge, output, tmp_path):
    (tmp_path / "p.yaml").write_text("returns: {gamma: 0.5, missing: zero, batch_rows: 7}")
    arguments = ("returns", judge, "-o", output, "--config", tmp_path / "p.yaml", "--set", "gamma=0.6")
    ended = run(*arguments, "--set", "missing=drop-dialogue", "--gamma", "0.7", "--reward", "outcome", "--dry-run")
    assert (ended.code, ended.err) == (0, "")
    found = yaml.safe_load(ended.out)
    chosen = {key: found[key] for key in ("gamma", "missing", "batch_rows", "reward", "until")}
    assert chosen == {
        "gamma": 0.7,
        "missing": "drop-dialogue",
        "batch_rows": 7,
        "reward": ["outcome"],
        "until": "stop",
    }
    assert not output.exists()
    assert run(*arguments, "--dry-run", "--json").json["gamma"] == 0.6


def test_a_dry_run_of_a_pipeline_prints_all_sections(run, tmp_path):
    (tmp_path / "p.yaml").write_text("rollout: {max_turns: 3}\ntrain: {iterations: 2}")
    found = yaml.safe_load(run("train", tmp_path / "p.yaml", "--set", "returns.missing=zero", "--dry-run").out)
    assert (found["train"]["iterations"], found["returns"]["missing"], found["evaluate"]["max_turns"]) == (2, "zero", 3)
    assert run("train", tmp_path / "p.yaml", "--dry-run", "--json").json["rollout"]["max_turns"] == 3


def test_a_dry_run_refuses_what_cannot_work(run, judge, output):
    assert run("returns", judge, "-o", output, "--gamma", "2", "--dry-run").code == 2


# --json -------------------------------------------------------------------------------------------------------------


def test_json_is_one_object_and_nothing_else_on_stdout(run, judge, output, tmp_path):
    returns = run("returns", judge, "-o", output, "--json").json
    assert (returns["stage"], returns["output"]) == ("returns", str(output))
    assert returns["counts"]["turns"] == 8
    advantage = run("advantage", output, "-o", tmp_path / "a.parquet", "--json").json
    assert advantage["stage"] == "advantage"
    assert run("inspect", output, "--json").json["counts"]["dialogues"] == 4
    assert len(run("inspect", output, "--dialogue", "a/0", "--json").json["turns"]) == 2
    assert run("inspect", output, "--schema", "--json").json["columns"][0]["name"] == "group_id"
    assert run("inspect", "--schema", "--json").json["columns"][-1]["name"] == "advantage_<term>"
    assert run("advantage", "--list", "--json").json["presets"]
    assert len(run("scenarios", "list", "--json").json["scenarios"]) == 240
    assert run("scenarios", "show", "--id", "demo-test-000", "--json").json["scenario_id"] == "demo-test-000"
    assert run("evaluate", "dialogue", output, "--json").json["counts"]["dialogues"] == 4


def test_json_goes_to_stdout_and_progress_to_stderr(run, judge, output):
    ended = run("returns", judge, "-o", output, "--json")
    assert len(ended.out.splitlines()) == 1
    quiet = run("returns", judge, "-o", output, "--overwrite", "--quiet")
    assert quiet.err == ""
    assert "mean reward" in quiet.out


def test_an_error_leaves_stdout_empty_with_json_too(run, tmp_path, output):
    ended = run("returns", tmp_path / "nowhere.parquet", "-o", output, "--json")
    assert (ended.code, ended.out) == (2, "")


# exit codes ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def broken(monkeypatch):
    """Makes ``dialrl returns`` end as told."""

    def end_with(end):
        def compute(*arguments, **options):
            raise end() if isinstance(end, type) else end

        monkeypatch.setattr(returns_stage, "compute_returns", compute)

    return end_with


def test_a_fault_of_ours_is_one_sentence_and_1_without_debug(run, broken, judge, output):
    broken(ZeroDivisionError("by zero"))
    ended = run("returns", judge, "-o", output)
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith("Internal error: ZeroDivisionError: by zero. This is a fault of dialrl")
    assert "Traceback" not in ended.err
    with pytest.raises(ZeroDivisionError):
        run("returns", judge, "-o", output, "--debug")


def test_too_many_failures_exit_with_1(run, broken, judge, output):
    broken(FailureThresholdError("4 of 8 dialogues failed."))
    ended = run("returns", judge, "-o", output)
    assert (ended.code, ended.err) == (1, "Error: 4 of 8 dialogues failed.\n")


def test_an_interruption_exits_with_130_and_says_what_is_kept(run, broken, judge, output):
    broken(KeyboardInterrupt)
    ended = run("returns", judge, "-o", output, "--quiet")
    assert (ended.code, ended.out) == (130, "")
    assert ended.err.startswith("Interrupted. Outputs appear only when complete;")
    assert "--resume" in ended.err


def test_a_polite_kill_is_an_interruption(run, monkeypatch, judge, output):
    monkeypatch.setattr(returns_stage, "compute_returns", lambda *a, **o: os.kill(os.getpid(), signal.SIGTERM))
    assert run("returns", judge, "-o", output).code == 130


def test_a_reader_that_goes_away_is_no_traceback(run, broken, judge, output):
    broken(BrokenPipeError(32, "Broken pipe"))
    assert "Traceback" not in run("returns", judge, "-o", output).err


def test_errors_are_raised_with_debug(run, tmp_path, output):
    with pytest.raises(FileNotFoundError, match="does not exist"):
        run("returns", tmp_path / "nowhere.parquet", "-o", output, "--debug")


# places that are given otherwise ------------------------------------------------------------------------------------


def test_a_folder_of_shards_is_an_input_everywhere(run, tmp_path, output):
    for group in ("a", "b"):
        write(tmp_path / "shards" / f"{group}.parquet", judged({group: POSITIONS[group]}), "rollout", "judge")
    assert run("returns", tmp_path / "shards", "-o", output, "--json").json["counts"]["groups"] == 2
    assert run("inspect", tmp_path / "shards", "--json").json["counts"]["turns"] == 8
    slim = run("returns", tmp_path / "shards", "-o", tmp_path / "s.parquet", "--slim")
    assert (slim.code, "A slim output completes one file" in slim.err) == (2, True)


def test_turns_as_json_lines_come_in_and_go_through_the_stages(run, tmp_path):
    lines = [json.dumps({**turn, "reward": 1.0}) for turn in turns(2, 2)]
    (tmp_path / "log.jsonl").write_text("\n".join(lines))
    imported = tmp_path / "turns.parquet"
    assert run("import", "turns", tmp_path / "log.jsonl", "-o", imported, "--json").json["counts"]["turns"] == 4
    assert run("returns", imported, "-o", tmp_path / "r.parquet", "--reward", "given", "--gamma", "0.5").code == 0
    assert column(tmp_path / "r.parquet", "return") == [1.5, 1.0, 1.5, 1.0]


def test_a_dry_run_needs_no_files_and_an_evaluation_takes_over_how_the_pipeline_trains(run, tmp_path):
    file = tmp_path / "p.yaml"
    file.write_text("rollout: {max_reply_tokens: 7}\nevaluate: {samples: 3}\n")
    assert run("rollout", "--config", file, "--dry-run", "--json").json["max_reply_tokens"] == 7
    evaluation = run("evaluate", "dialogue", "--config", file, "--dry-run", "--json").json
    assert (evaluation["max_reply_tokens"], evaluation["samples"]) == (7, 3)


def test_only_a_regular_file_is_ever_replaced(run, judge, tmp_path):
    import os

    (tmp_path / "folder").mkdir()
    assert run("returns", judge, "-o", tmp_path / "folder", "--overwrite").code == 2
    os.mkfifo(tmp_path / "pipe")
    ended = run("returns", judge, "-o", tmp_path / "pipe", "--overwrite")
    assert ended.code == 2
    assert "no regular file" in ended.err


def test_a_slim_output_never_replaces_what_its_input_completes(run, judge, tmp_path):
    returns, advantage = tmp_path / "r.parquet", tmp_path / "a.parquet"
    before = judge.read_bytes()
    assert run("returns", judge, "--slim", "-o", returns, "--quiet").code == 0
    assert run("advantage", returns, "--slim", "-o", advantage, "--quiet").code == 0
    ended = run("returns", advantage, "--slim", "-o", judge, "--overwrite")
    assert (ended.code, judge.read_bytes()) == (2, before)
