"""``dialrl judge --judge information-gain`` from the command line."""

from tests.trajectory_files import judged, write


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
