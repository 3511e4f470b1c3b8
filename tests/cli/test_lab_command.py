"""``dialrl lab`` as a user meets it: the study in small from its shipped plan, single runs, and the report on both."""

from pathlib import Path

import pyarrow.parquet as pq

PLAN = Path(__file__).parents[2] / "pipelines" / "lab" / "small.yaml"
ONE_PROCESS = ("--jobs", 1)
QUICK = ("--turn-limit", 5, "--iterations", 2, "--groups", 4, "--samples", 4, "--evaluate-every", 1)


def test_the_small_study_says_and_keeps_what_it_found(run, tmp_path):
    ended = run("lab", "study", "--config", PLAN, "-o", tmp_path / "small", "--json", *ONE_PROCESS)
    found = ended.json
    assert found["counts"] == {"runs": 15, "played_now": 15}
    assert set(found["settings"]["short"]) == {"mica", "turn-only", "grpo"}
    grpo = found["settings"]["short"]["grpo"]
    assert grpo["seeds"] == 3
    low, high = grpo["final_interval"]
    assert grpo["worst"] <= low <= grpo["final"] <= high
    assert found["reference"]["short"]["optimum"] == 1.0
    assert set(found["comparisons"]["short"]) == {"turn-only", "grpo"}
    assert pq.read_metadata(tmp_path / "small" / "lab.parquet").num_rows == 15 * 3
    page = run("report", tmp_path / "small", "-o", tmp_path / "page.html", "--json").json
    assert page["counts"]["studies"] == 1
    assert page["counts"]["charts"] == 2


def test_a_used_folder_is_continued_or_refused(run, tmp_path):
    plan = ("lab", "study", "--config", PLAN, "-o", tmp_path / "a", "--presets", "mica", "--seeds", 1, *ONE_PROCESS)
    assert run(*plan).code == 0
    refused = run(*plan)
    assert (refused.code, "--resume to play only what is missing" in refused.err) == (2, True)
    shown = run(*plan, "--resume")
    assert shown.code == 0
    assert "3 runs, 0 played now" in shown.out
    assert "myopic 0.435, optimum 1" in shown.out


def test_a_single_run_leaves_its_table_with_files_or_without(run, tmp_path):
    whole = run("lab", "fast", "-o", tmp_path / "whole", "--json", *QUICK).json
    quick = run("lab", "fast", "-o", tmp_path / "quick", "--json", "--no-files", *QUICK).json
    assert whole["curve"] == quick["curve"]
    assert sorted(path.name for path in (tmp_path / "quick").iterdir()) == ["lab.parquet"]
    assert sorted(path.name for path in (tmp_path / "whole").iterdir()) == ["0000", "0001", "lab.parquet"]


def test_what_a_study_cannot_do_is_said_before_any_run(run, tmp_path):
    for option, value, sentence in (
        ("--presets", "igpo", "needs the policy's belief"),
        ("--presets", "mika", "Did you mean 'mica'"),
        ("--settings", "shrot", "Did you mean 'short'"),
    ):
        ended = run("lab", "study", "-o", tmp_path / "a", option, value)
        assert (ended.code, sentence in ended.err) == (2, True)
    assert not (tmp_path / "a").exists()
