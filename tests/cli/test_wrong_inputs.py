"""Wrong input gives one clear error or a counted warning, the right exit code, and no traceback (issue 2)."""

import pyarrow as pa
import pytest
from tests.trajectory_files import judged, turns, write, write_raw

from dialrl.trajectory.schema import SCHEMA_VERSION, schema_for

POSITIONS = {"a": [(-8.0, -6.0), (-7.0, -7.0)], "b": [(-9.0, -8.0), (-5.0, -5.0)]}
KEY_TABLE = pa.table({"group_id": ["g"], "sample": [0], "turn": [0]}, schema=schema_for(["group_id", "sample", "turn"]))


def not_parquet(path):
    path.write_text("group_id,reward\n" * 20)


def truncated(path):
    write(path, judged(POSITIONS), "rollout", "judge")
    path.write_bytes(path.read_bytes()[:-100])


def unsorted(path):
    write(path, judged(POSITIONS)[::-1], "rollout", "judge")


WRONG_FILES = {
    "missing": (lambda path: None, "in.parquet' does not exist. Give a trajectory file or a folder of shards."),
    "not Parquet": (not_parquet, "in.parquet' is not a Parquet file, or a truncated one"),
    "truncated": (truncated, "in.parquet' is not a Parquet file, or a truncated one"),
    "empty": (lambda path: path.write_bytes(b""), "in.parquet' is empty (0 bytes)"),
    "without rows": (
        lambda path: write_raw(path, KEY_TABLE.slice(0, 0), {"schema_version": SCHEMA_VERSION, "lineage": []}),
        "in.parquet' holds no turns",
    ),
    "another schema version": (
        lambda path: write_raw(path, KEY_TABLE, {"schema_version": 99, "lineage": []}),
        "in.parquet' has schema version 99; this dialrl reads version 1",
    ),
    "plain Parquet": (lambda path: write_raw(path, KEY_TABLE, None), "no trajectory file"),
}
COMMANDS = {
    "judge": ("judge", "-o"),
    "returns": ("returns", "-o"),
    "advantage": ("advantage", "-o"),
    "evaluate empa": ("evaluate", "empa"),
    "evaluate dialogue": ("evaluate", "dialogue"),
    "inspect": ("inspect",),
}


def arguments(command, path):
    words = list(COMMANDS[command])
    output = [words.pop(), path.with_name("out.parquet")] if words[-1] == "-o" else []
    return [*words, path, *output]


def assert_one_error(ended, sentence):
    assert ended.code == 2
    assert ended.out == ""
    assert ended.err.startswith("Error: ")
    assert sentence in ended.err
    assert ended.err.count("\n") == 1
    assert "Traceback" not in ended.err


@pytest.mark.parametrize("name", WRONG_FILES)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_wrong_file_is_one_error_of_every_command(run, tmp_path, command, name):
    make, sentence = WRONG_FILES[name]
    path = tmp_path / "in.parquet"
    make(path)
    assert_one_error(run(*arguments(command, path)), sentence)
    assert not (tmp_path / "out.parquet").exists()


@pytest.mark.parametrize("command", ["judge", "returns", "evaluate empa", "evaluate dialogue", "inspect"])
def test_an_unsorted_file_is_refused_naming_what_sorts_it(run, tmp_path, command):
    unsorted(tmp_path / "in.parquet")
    ended = run(*arguments(command, tmp_path / "in.parquet"), "--quiet")
    assert_one_error(ended, "is not sorted by (group_id, sample, turn)")
    assert "dialrl import turns" in ended.err


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("returns", "lacks the columns deficit, position, which the stage 'judge' writes"),
        ("advantage", "has been through 'rollout'; this needs a file that has been through 'returns'"),
        ("evaluate dialogue", "has been through 'rollout'; this needs a file that has been through 'judge'"),
        ("evaluate empa", "judge"),
    ],
)
def test_a_file_of_the_wrong_stage_is_refused_naming_the_one_that_is_missing(run, tmp_path, command, sentence):
    path = write(tmp_path / "in.parquet", turns(2, 2, reply="x", scenario_id="s", environment="demo"))
    assert_one_error(run(*arguments(command, path)), sentence)


@pytest.fixture
def returns(run, tmp_path):
    """A file that has been through returns at gamma 0.85."""
    path = write(tmp_path / "judge.parquet", judged(POSITIONS), "rollout", "judge")
    assert run("returns", path, "-o", tmp_path / "returns.parquet", "--quiet").code == 0
    return tmp_path / "returns.parquet"


def test_an_unknown_preset_is_refused_with_the_nearest_and_all_known(run, tmp_path, returns):
    ended = run("advantage", returns, "-o", tmp_path / "a.parquet", "--preset", "mapoo")
    assert_one_error(ended, "mapoo")
    assert "Did you mean 'mapo'?" in ended.err
    assert "reinforce++" in ended.err


def test_an_unknown_channel_is_refused_with_the_nearest(run, tmp_path, returns):
    ended = run("returns", tmp_path / "judge.parquet", "-o", tmp_path / "r.parquet", "--reward", "outcomes")
    assert_one_error(ended, "Unknown reward channel 'outcomes'. Did you mean 'outcome'?")


def test_another_gamma_than_the_presets_is_refused_with_both_remedies(run, tmp_path):
    path = write(tmp_path / "judge.parquet", judged(POSITIONS), "rollout", "judge")
    assert run("returns", path, "-o", tmp_path / "r.parquet", "--gamma", "0.5").code == 0
    ended = run("advantage", tmp_path / "r.parquet", "-o", tmp_path / "a.parquet", "--preset", "mica")
    assert_one_error(ended, "was published with gamma 0.85, but the file's returns were made with gamma 0.5")
    assert "--gamma 0.5" in ended.err
    assert run("advantage", tmp_path / "r.parquet", "-o", tmp_path / "a.parquet", "--gamma", "0.5").code == 0


@pytest.mark.parametrize("gamma", ["2", "nan", "much"])
def test_a_gamma_out_of_range_is_refused(run, tmp_path, returns, gamma):
    ended = run("returns", tmp_path / "judge.parquet", "-o", tmp_path / "r.parquet", "--gamma", gamma)
    assert ended.code == 2
    assert "gamma" in ended.err
    assert "Traceback" not in ended.err


def warnings_of(run, tmp_path, groups, *options):
    path = write(tmp_path / "judge.parquet", judged(groups), "rollout", "judge")
    run("returns", path, "-o", tmp_path / "returns.parquet", "--quiet")
    return run("advantage", tmp_path / "returns.parquet", "-o", tmp_path / "a.parquet", "--json", *options).json


def test_a_group_of_one_is_a_counted_warning(run, tmp_path):
    summary = warnings_of(run, tmp_path, {"a": [(-8.0,), (-7.0,)], "b": [(-8.0,)]}, "--preset", "grpo")
    assert "Group sizes differ: the smallest has 1 dialogues, 2 were expected." in summary["warnings"]
    assert summary["pools"]["dialogue: dialogue-group"]["degenerate"] == 1


def test_all_rewards_equal_is_a_counted_warning(run, tmp_path):
    summary = warnings_of(run, tmp_path, {"a": [(-8.0,), (-8.0,)], "b": [(-8.0,), (-8.0,)]})
    assert "Term 'group': all 2 pools of scope group are degenerate; it is 0." in summary["warnings"]
    assert summary["mean_absolute_advantage"] == 0


@pytest.mark.parametrize("stage", ["judge", "rollout", "returns", "advantage", "update"])
def test_a_configuration_file_that_is_wrong_is_refused(run, tmp_path, stage):
    path = write(tmp_path / "in.parquet", judged(POSITIONS), "rollout", "judge")
    (tmp_path / "p.yaml").write_text(f"{stage}: {{seeed: 1}}")
    inputs = [] if stage == "rollout" else [path]
    policy = ["--policy", tmp_path] if stage in ("rollout", "update") else []
    ended = run(stage, *inputs, "-o", tmp_path / "out", *policy, "--config", tmp_path / "p.yaml")
    assert_one_error(ended, f"section '{stage}': unknown key 'seeed'.")


@pytest.mark.parametrize("policy", ["nowhere", "."])
def test_a_policy_that_is_none_is_refused(run, tmp_path, monkeypatch, policy):
    monkeypatch.chdir(tmp_path)
    ended = run("rollout", "--policy", policy, "-o", tmp_path / "r.parquet")
    assert ended.code == 2
    assert ended.err.startswith("Error: ")
    assert "Traceback" not in ended.err


def test_an_unknown_environment_or_judge_or_scenario_is_refused(run, tmp_path):
    path = write(tmp_path / "in.parquet", judged({"nobody": [(-8.0,)]}), "rollout")
    assert_one_error(
        run("judge", path, "-o", tmp_path / "j.parquet", "--judge", "demoo", "--regrade"),
        "'demoo' is none of the judges. Did you mean 'demo'?",
    )
    assert_one_error(
        run("judge", path, "-o", tmp_path / "j.parquet", "--regrade", "--quiet"), "has no scenario 'nobody'"
    )
    assert_one_error(run("scenarios", "show", "--id", "nobody"), "The demo world has no scenario 'nobody'")
    assert_one_error(run("scenarios", "list", "--split", "dev"), "no split 'dev'; expected one of: train, test")
