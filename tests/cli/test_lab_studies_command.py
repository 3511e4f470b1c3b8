"""``dialrl lab noise``, ``variance`` and ``cost`` as a user meets them."""

import pyarrow.parquet as pq

SMALL = ("--groups", 4, "--samples", 4, "--iterations", 2, "--step-sizes", 12, "--tuning-seeds", 1, "--seeds", 1)


def test_variance_prints_figures_by_policy_and_preset(run, tmp_path):
    quick = ("--presets", "mica", "--presets", "grpo", "--updates", 0, "--batches", 4, "--groups", 4, "--samples", 4)
    ended = run("lab", "variance", "-o", tmp_path / "v", "--turn-limit", 3, "--json", *quick)
    assert ended.code == 0
    figures = ended.json["after_updates"]["0"]
    assert set(figures) == {"mica", "grpo"}
    assert figures["mica"]["cosine_low"] <= figures["mica"]["cosine"] <= figures["mica"]["cosine_high"]
    assert pq.read_metadata(tmp_path / "v" / "variance.parquet").num_rows == 8


def test_cost_prints_what_an_update_costs(run, tmp_path):
    methods = ("--methods", "mica", "--methods", "branch-reward", "--turn-limit", 4, "--evaluate-repeats", 1)
    ended = run("lab", "cost", "-o", tmp_path / "c", "--json", *SMALL, *methods)
    assert ended.code == 0
    assert (
        ended.json["methods"]["branch-reward"]["user_turns_an_update"] * 4
        == (ended.json["methods"]["branch-reward"]["policy_turns_an_update"])
    )
    again = run("lab", "cost", "-o", tmp_path / "c", "--json", *SMALL, *methods)
    assert again.code == 2
    assert "--resume" in again.err


def test_noise_refuses_a_judge_it_does_not_know(run, tmp_path):
    ended = run("lab", "noise", "-o", tmp_path / "n", "--settings", "deaf=1", *SMALL)
    assert ended.code == 2
    assert "expected exact, or noise=" in " ".join(ended.err.split())
