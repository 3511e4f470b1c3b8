"""SAGE with a model: conversations in the published shape, endings, what broke, resume, and scoring again."""

import json

import pyarrow.parquet as pq
import pytest
from tests.asked_models import served, settings
from tests.benchmark_files import profile, write_lines
from tests.model_server import ModelServer

from dialrl.endpoint.failure import BudgetError
from dialrl.errors import FailureThresholdError, OutputExistsError, UsageError
from dialrl.evaluate.benchmark_config import SageConfig
from dialrl.evaluate.sage import evaluate_sage
from dialrl.evaluate.sage_live import run_sage


@pytest.fixture
def profiles(tmp_path):
    return write_lines(tmp_path / "profiles.jsonl", [{**profile(key), "player": f"Person {key}."} for key in "abc"])


# Person a is won over, b lost, c stands still until the limit.
CHANGES = {"a": 10, "b": -12, "c": 0}


def world(body):
    if body["model"] == "served":
        return "I hear you."
    told = body["messages"][0]["content"]
    person = next(key for key in CHANGES if f"Person {key}." in told)
    if "inner voice" in told:
        return json.dumps({"analysis": "Hm.", "change": CHANGES[person]})
    return f"{person} speaks, {len(body['messages'])}."


def run(server, profiles, output=None, *, overwrite=False, resume=False, **options):
    values = settings(server, **{"simulator": {"model": "simulator"}, **options})
    config = SageConfig(**values)
    return run_sage(served(config), profiles, config, output=output, overwrite=overwrite, resume=resume)


def test_score_success_failure_and_endings_by_hand(profiles):
    with ModelServer(world) as server:
        summary = run(server, profiles)
    shown = summary.figures
    assert (shown["score"], shown["success"], shown["failure"]) == (pytest.approx((100 + 0 + 40) / 3), 1, 1)
    assert shown["endings"] == {"success": 1, "failure": 1, "farewell": 0, "turn_limit": 1}
    # a: 40 to 100 in six replies; b: held within 10, 40 to 0 in four; c: nine replies, ten lines of the user.
    assert (summary.counts["replies"], summary.counts["user_turns"]) == (6 + 4 + 9, 7 + 5 + 10)
    assert (summary.counts["arithmetic_mismatches"], summary.counts["other_faults"]) == (0, 0)
    assert shown["asked"]["simulator"] == {"model": "simulator"}
    assert {"policy", "simulator"} <= set(shown["calls"])


def test_conversations_are_kept_in_the_published_shape_and_can_be_scored_again(profiles, tmp_path):
    output = tmp_path / "items.parquet"
    with ModelServer(world) as server:
        summary = run(server, profiles, output)
    kept = {row["item"]: json.loads(row["conversation"]) for row in pq.read_table(output).to_pylist()}
    assert [line.get("emotion-point") for line in kept["b"]["history"]] == [40, None, 30, None, 20, None, 10, None, 0]
    assert [line["planning"]["change"] for line in kept["b"]["history"][2::2]] == [-12, -12, -12, -10]
    assert (kept["b"]["emo_point"], kept["b"]["emo_state"]) == (0, "Emotion-F")
    again = evaluate_sage(output, profiles, SageConfig(resamples=50))
    assert {name: again.figures[name] for name in ("score", "success", "failure", "endings")} == {
        name: summary.figures[name] for name in ("score", "success", "failure", "endings")
    }
    exported = write_lines(tmp_path / "as-published.jsonl", kept.values())
    assert evaluate_sage(exported, profiles, SageConfig(resamples=50)).figures["score"] == summary.figures["score"]
    assert (tmp_path / "items.dialogues.parquet").exists()


def test_by_rlver_s_rules_the_emotion_moves_freely_and_the_score_is_its_reward(profiles):
    with ModelServer(world) as server:
        summary = run(server, profiles, rules="rlver")
    # a: 30 by tens to 100; b: 30, 18, 6; c stays at 30.
    assert summary.figures["score"] == pytest.approx((100 + 6 + 30) / 3)
    assert summary.figures["settings"]["most_user_turns"] == 8


def test_a_broken_simulator_breaks_its_conversation_and_no_other(profiles, tmp_path):
    def broken(body):
        answer = world(body)
        return "no number" if "inner voice" in body["messages"][0]["content"] and "Person b." in str(body) else answer

    output = tmp_path / "items.parquet"
    with ModelServer(broken) as server, pytest.raises(FailureThresholdError, match="1 of 3 items"):
        run(server, profiles, output)
    rows = {row["item"]: row for row in pq.read_table(output).to_pylist()}
    assert (rows["b"]["status"], rows["b"]["score"]) == ("failed", None)
    assert "no change of emotion" in rows["b"]["error"]
    assert rows["a"]["score"] == 100.0
    with ModelServer(broken) as server:
        summary = run(server, profiles, max_failed=0.5)
    assert summary.counts["failed_conversations"] == 1
    assert any("says nothing about the model" in warning for warning in summary.warnings)


def test_a_simulator_that_does_not_answer_in_time_ends_no_conversation_of_the_model(profiles):
    slow = lambda number, body: "hang" if "Person c." in str(body) and "inner voice" in str(body) else None  # noqa: E731
    with ModelServer(world, faults=slow) as server:
        summary = run(server, profiles, call_timeout_seconds=0.5, max_failed=1.0)
    assert (summary.counts["conversations"], summary.counts["failed_conversations"]) == (2, 1)


def test_a_spent_budget_ends_resumably_and_no_call_is_made_twice(profiles, tmp_path):
    output = tmp_path / "items.parquet"
    with ModelServer(world) as server:
        whole = run(server, profiles)
        calls = len(server.requests)
    with ModelServer(world) as server:
        with pytest.raises(BudgetError):
            run(server, profiles, output, budget_tokens=4000)
        assert 0 < len(server.requests) < calls
        with pytest.raises(OutputExistsError, match="--resume"):
            run(server, profiles, output)
        summary = run(server, profiles, output, resume=True)
        assert len(server.requests) == calls
        assert summary.figures["score"] == whole.figures["score"]
        run(server, profiles, output, resume=True)
        assert len(server.requests) == calls


def test_the_limit_takes_the_first_profiles_and_says_how_little_that_means(profiles, tmp_path):
    with ModelServer(world) as server:
        summary = run(server, profiles, tmp_path / "items.parquet", limit=1)
    assert pq.read_table(tmp_path / "items.parquet")["item"].to_pylist() == ["a"]
    assert any("this is no SAGE score" in warning for warning in summary.warnings)


def test_without_a_simulator_nothing_is_asked(profiles):
    with ModelServer(world) as server, pytest.raises(UsageError, match="--simulator"):
        run(server, profiles, simulator={})
    assert server.requests == []
