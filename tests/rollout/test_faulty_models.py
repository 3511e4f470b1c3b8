"""Whole rollouts on models that fail: every failure is a retry or a row, a kill loses only what was in flight."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter

import yaml
from tests.model_server import KINDS, ModelServer, at_random
from tests.support_world import pipeline, world, write_cards
from tests.trajectory_files import read

from dialrl.endpoint.journal import Journal
from dialrl.judge.config import JudgeConfig
from dialrl.judge.stage import judge_dialogues
from dialrl.rollout.config import RolloutConfig
from dialrl.rollout.policy import open_policy
from dialrl.rollout.stage import roll_out

REASONS = {"empty", "wrong_schema", "timeout", "connection", "bad_response", "http_429", "http_500"}
WIRE = ("429", "500", "hang", "cut", "truncated_json", "drip")


def rolled_out(path, values, **options):
    config = RolloutConfig(**values)
    policy = open_policy("policy", engine="openai", engine_options=config.engine_options, endpoints=config.endpoints)
    return roll_out(policy, path, config, **options)


def test_64_dialogues_of_8_turns_under_10_percent_faults_end_with_every_failure_a_row_or_a_retry(tmp_path):
    cards = write_cards(tmp_path / "cards", 16)
    faults = at_random(0.1, seed=1)
    with ModelServer(world, faults=faults) as server:
        values = pipeline(cards, server.url, timeout_seconds=1.0) | {
            "groups": 16, "samples": 4, "max_turns": 8, "grading": "live", "max_failed": 1.0,
            "stop": {"collapse": False, "success": False, "regression": False},
        }  # fmt: skip
        summary = rolled_out(tmp_path / "rollout.parquet", values)
    rows = read(tmp_path / "rollout.parquet")
    told = Counter(server.injected)
    assert set(told) == set(KINDS)
    assert summary.counts["dialogues"] == 64
    by_role = summary.figures["calls"]
    sent = sum(counts["tries"] for counts in by_role.values())
    calls = sum(counts["calls"] for counts in by_role.values())
    # Each fault of the wire was tried again or is counted as a failed call.
    failed_calls = sum(n for counts in by_role.values() for name, n in counts.items() if name.startswith("failed_"))
    assert len(server.requests) <= sent  # on a busy machine a try may be given up before it arrives
    assert sent - calls + failed_calls >= sum(told[kind] for kind in WIRE)
    # A judgement that came back empty or misshapen is missing with its reason, and never a number.
    missing = [row for row in rows if row["judge_status"] == "missing" and row["status"] == "ok"]
    assert missing
    assert {row["judge_error"].partition(":")[0] for row in missing} <= REASONS
    assert all(row["increment"] is None and row["grades"] is None for row in missing)
    graded = [row for row in rows if row["judge_status"] == "ok"]
    assert all(len(row["grades"]) == 6 for row in graded)
    # Dialogues are whole, or rows with status error that say why.
    ends = [row for row in rows if row["end_reason"]]
    assert len(ends) == 64
    assert all(row["turn"] == 7 for row in ends if row["end_reason"] == "turn_limit")
    assert all(row["error"] for row in ends if row["end_reason"] == "error")
    assert Counter(row["end_reason"] for row in ends)["turn_limit"] >= 56
    assert all(row["reply"] for row in rows if row["status"] == "ok" and "policy" in row["reply"])


def test_grading_afterwards_asks_what_the_live_judge_was_asked_and_the_cache_knows_it(tmp_path):
    cards = write_cards(tmp_path / "cards", 2)
    cache = {"cache": True, "cache_folder": str(tmp_path / "cache")}
    with ModelServer(world) as server:
        values = pipeline(cards, server.url) | {"groups": 2, "samples": 2, "max_turns": 3, "grading": "live"} | cache
        rolled_out(tmp_path / "rollout.parquet", values)
        asked = len(server.requests)
        judge = JudgeConfig(
            judge="rubric", judge_options=values["judge_options"], endpoints=values["endpoints"], regrade=True,
            environment_options=values["environment_options"], **cache,
        )  # fmt: skip
        summary = judge_dialogues(tmp_path / "rollout.parquet", tmp_path / "judge.parquet", judge)
    assert len(server.requests) == asked
    assert summary.figures["calls"]["judge"]["from_cache"] == 12
    live, after = read(tmp_path / "rollout.parquet"), read(tmp_path / "judge.parquet")
    assert [row["increment"] for row in live] == [row["increment"] for row in after]


def test_a_killed_rollout_resumes_and_sends_again_only_what_was_in_flight(tmp_path):
    cards = write_cards(tmp_path / "cards", 4)
    whole, broken = tmp_path / "whole.parquet", tmp_path / "broken.parquet"
    with ModelServer(world, latency_seconds=0.02) as server:
        values = pipeline(cards, server.url, timeout_seconds=30, concurrency=2) | {
            "groups": 4, "samples": 2, "max_turns": 5, "grading": "live", "max_failed": 1.0
        }  # fmt: skip
        rolled_out(whole, values)
        needed = len(server.requests)
        server.requests.clear()
        server.answered.clear()
        file = tmp_path / "pipeline.yaml"
        file.write_text(yaml.safe_dump({"rollout": values}))
        process = start(file, broken)
        journal = tmp_path / ".broken.parquet.parts" / "calls.jsonl"
        while len(Journal(journal).entries) < needed // 2 and process.poll() is None:
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert not broken.exists()
        time.sleep(0.5)  # until the server has read what the dead client had sent
        kept, before = len(Journal(journal).entries), len(server.requests)
        assert 0 < kept < needed
        rolled_out(broken, values, resume=True)
    assert before - kept <= 8  # sent and not yet answered: two slots for each of four roles
    assert len(server.requests) - before == needed - kept
    assert read(broken) == read(whole)


def start(file, output):
    """The real command in a process of its own."""
    command = [
        sys.executable,
        "-c",
        "from dialrl.cli import main; main()",
        "rollout",
        "--policy",
        "policy",
        "--config",
        str(file),
        "-o",
        str(output),
    ]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
