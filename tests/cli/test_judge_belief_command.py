"""``dialrl judge --judge information-gain`` from the command line."""

from tests.trajectory_files import judged, read, write


def test_a_policy_is_needed_and_files_without_ids_are_refused(run, tmp_path):
    path = write(tmp_path / "r.parquet", judged({"g": [[-8.0]]}))
    asked = ("judge", path, "--judge", "information-gain", "-o", tmp_path / "j.parquet")
    ended = run(*asked)
    assert (ended.code, "--policy DIRECTORY" in ended.err) == (2, True)
    ended = run(*asked, "--policy", "demo-policy", "--set", "judge_options.scorer=frozen")
    assert (ended.code, "lacks the columns segment" in ended.err) == (2, True)


def test_a_wrong_option_of_the_judge_is_named(run, tmp_path):
    path = write(tmp_path / "r.parquet", judged({"g": [[-8.0]]}))
    asked = ("judge", path, "--judge", "information-gain", "--policy", "demo-policy", "-o", tmp_path / "j.parquet")
    ended = run(*asked, "--set", "judge_options.scorers=frozen")
    assert (ended.code, "Did you mean 'scorer'?" in ended.err) == (2, True)


def test_hidden_needs_are_asked_for_by_a_flag(run, tmp_path):
    rows = [
        {
            **row, "environment": "demo", "scenario_id": name, "group_id": name, "end_reason": "turn_limit",
            "final_messages": [{"role": "user", "content": "Maybe. I am not sure.", "name": None}],
        }
        for name in ("demo-test-000", "demo-test-001")
        for row in judged({"g": [[-8.0]]})
    ]  # fmt: skip
    path = write(tmp_path / "r.parquet", rows)
    asked = ("judge", path, "--kind", "information-gain", "--targets", "needs", "--policy", "demo-policy")
    ended = run(*asked, "--set", "judge_options.line=It is your {need}.", "-o", tmp_path / "j.parquet", "--json")
    assert ended.code == 0, ended.err
    assert read(tmp_path / "j.parquet")[0]["belief_after_shuffled"] is not None
