"""The kinds of ``dialrl judge`` that add a column beside the grades, and ``dialrl evaluate safety``, as commands."""

from tests.policies import random_policy
from tests.trajectory_files import row, write

from dialrl.rollout.config import RolloutConfig
from dialrl.rollout.policy import open_policy
from dialrl.rollout.stage import roll_out
from dialrl.trajectory.reader import TrajectoryFile


def test_kind_reference_kl_writes_kl_and_its_channel_reads_it(run, tmp_path):
    policy = random_policy(tmp_path / "policy")
    rollout, kl, returns = (tmp_path / f"{name}.parquet" for name in ("rollout", "kl", "returns"))
    roll_out(open_policy(policy), rollout, RolloutConfig(groups=1, samples=2, max_turns=2, max_reply_tokens=6))
    missing = run("judge", "--kind", "reference-kl", rollout, "-o", kl)
    assert missing.code == 2
    assert "--reference DIRECTORY" in missing.err
    done = run("judge", "--kind", "reference-kl", "--reference", policy, rollout, "-o", kl, "--json")
    assert done.json["reference_digest"] == TrajectoryFile.open(rollout).lineage.record("rollout").inputs[0].digest
    assert run("returns", kl, "--reward", "kl", "-o", returns).code == 0
    assert "reward_kl" in TrajectoryFile.open(returns).names


def test_kind_implicit_reward_shares_out_the_outcome_and_its_channel_reads_it(run, tmp_path):
    policy, model = random_policy(tmp_path / "policy"), random_policy(tmp_path / "model", seed=1)
    rollout, implicit, returns = (tmp_path / f"{name}.parquet" for name in ("rollout", "implicit", "returns"))
    config = RolloutConfig(groups=1, samples=2, max_turns=2, max_reply_tokens=6, grading="live")
    roll_out(open_policy(policy), rollout, config)
    models = ("--reward-model", model, "--reference", policy)
    refused = run("judge", "--kind", "implicit-reward", *models, rollout, "-o", implicit)
    assert refused.code == 2
    assert "outcome_range" in refused.err
    limits = ("--set", "implicit_options.outcome_range=[-14, 14]")
    done = run("judge", "--kind", "implicit-reward", *models, *limits, rollout, "-o", implicit, "--json")
    assert done.json["reference_digest"] == TrajectoryFile.open(rollout).lineage.record("rollout").inputs[0].digest
    assert run("returns", implicit, "--reward", "implicit", "-o", returns).code == 0
    assert "reward_implicit" in TrajectoryFile.open(returns).names


def test_a_kind_leaves_what_was_not_given_as_not_given(run, tmp_path):
    rollout, again = tmp_path / "rollout.parquet", tmp_path / "again.parquet"
    config = RolloutConfig(groups=1, samples=1, max_turns=1, grading="live", judge_options={"noise": 0.5})
    roll_out(open_policy(random_policy(tmp_path / "policy")), rollout, config)
    assert run("judge", "--kind", "demo", rollout, "-o", again, "--json").json["passed_on_from_rollout"]


def checked(path, levels, reward):
    rows = [
        {
            **row(name, 0, 0, scenario_id=name, status="ok", reward=reward, reward_filled=reward),
            "crisis": "abuse", "safety_level": level, "safety_status": "ok",
            "safety": [{"indicator": "Blame", "level": level, "evidence": "[bold]your\x1b[31m fault[/]"}],
        }
        for name, level in zip("abcdef", levels, strict=True)
    ]  # fmt: skip
    return write(path, rows, "rollout", "judge")


def test_a_run_that_gains_reward_while_safety_falls_ends_with_1_and_says_all_it_found(run, tmp_path):
    files = [
        checked(tmp_path / "0.parquet", [0] * 6, 0.0), checked(tmp_path / "1.parquet", [-2] * 5 + [0], 1.0)
    ]  # fmt: skip
    flagged = run("evaluate", "safety", *files)
    assert flagged.code == 1
    assert "REWARD RISES WHILE SAFETY FALLS" in flagged.out
    assert "1: a/0" in flagged.out
    assert "[bold]your\\u001b[31m fault[/]" in flagged.out
    assert "worst reply" not in flagged.out
    assert "Error: Reward rises while safety falls" in flagged.err
    allowed = run("evaluate", "safety", *files, "--no-fail-on-flag", "--json")
    assert allowed.json["reward_rises_while_safety_falls"] is True
    assert len(allowed.json["worst_reply"]) == 12


def test_inspect_tells_what_the_check_and_the_comparison_found(run, tmp_path):
    grades = [{"indicator": "Blame", "level": -2}, {"indicator": "Secrecy", "level": 0}]
    facts = {"messages": [], "reply": "So.", "crisis": "abuse"}
    rows = [
        row("g", turn=0, **facts, safety=grades, safety_level=-2, safety_status="ok", kl=0.25),
        row("g", turn=1, **facts, safety=grades[1:], safety_level=0, safety_status="ok"),
        row("g", turn=2, **facts, safety_status="missing", safety_error="timeout"),
    ]
    shown = run("inspect", write(tmp_path / "s.parquet", rows, "rollout", "judge"), "--dialogue", "g/0").out
    for said in ("safety Blame -2", "kl 0.25", "safety nothing found", "safety not known (timeout)"):
        assert said in shown
