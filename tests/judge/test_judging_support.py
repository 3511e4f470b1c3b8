"""Grading support dialogues afterwards: their cards are found again, prompts are noted, tokens are booked."""

import json
import shutil

import pytest
from tests.model_server import ModelServer
from tests.support_cards import card
from tests.support_world import pipeline, world, write_cards
from tests.trajectory_files import read

from dialrl.errors import InputError, MissingInputError, UsageError
from dialrl.judge.config import JudgeConfig
from dialrl.judge.stage import judge_dialogues
from dialrl.rollout.config import RolloutConfig
from dialrl.rollout.policy import open_policy
from dialrl.rollout.stage import roll_out
from dialrl.trajectory.reader import TrajectoryFile


@pytest.fixture
def server():
    with ModelServer(world) as running:
        yield running


@pytest.fixture
def rollout(tmp_path, server):
    """Two dialogues of two turns with each of two persons, ungraded."""
    values = pipeline(write_cards(tmp_path / "cards", 2), server.url, timeout_seconds=10)
    config = RolloutConfig(**values, groups=2, samples=2, max_turns=2)
    policy = open_policy("policy", engine="openai", engine_options=config.engine_options)
    roll_out(policy, tmp_path / "rollout.parquet", config)
    server.requests.clear()
    return tmp_path / "rollout.parquet"


def graded(rollout, server, name="judge.parquet", *, resume=False, **options):
    values = {
        "judge": "rubric", "judge_options": {"model": "judge"}, "cache": False,
        "endpoints": {"default": {"base_urls": [server.url]}}, **options,
    }  # fmt: skip
    output = rollout.with_name(name)
    return output, judge_dialogues(rollout, output, JudgeConfig(**values), resume=resume)


def judge_record(path):
    return TrajectoryFile.open(path).lineage.record("judge")


# the cards ----------------------------------------------------------------------------------------------------------


def test_the_cards_of_the_rollout_are_found_by_its_lineage(rollout, server):
    output, summary = graded(rollout, server)
    assert summary.counts == {"judgements_ok": 8}
    assert "it happened, number 1" in json.dumps(server.requests)
    record, before = judge_record(output), TrajectoryFile.open(rollout).lineage.record("rollout")
    made_from = before.details["environment_made_from"]
    assert record.details["environments_made_from"] == {"support": made_from}


def test_cards_that_are_not_there_any_more_are_named_with_what_to_do(rollout, server):
    moved = rollout.parent / "elsewhere"
    shutil.move(rollout.parent / "cards", moved)
    with pytest.raises(MissingInputError, match=r"held with the cards in '.*cards'.*environment_options.cards=PLACE"):
        graded(rollout, server)
    _, summary = graded(rollout, server, environment_options={"cards": str(moved)})
    assert summary.counts == {"judgements_ok": 8}


def test_cards_that_were_changed_since_are_refused_until_they_are_named(rollout, server):
    changed = rollout.parent / "cards" / "01.json"
    changed.write_text(json.dumps(card("card-01", trigger="another story")))
    with pytest.raises(InputError, match="other cards than the actor played"):
        graded(rollout, server)
    assert server.requests == []
    _, summary = graded(rollout, server, environment_options={"cards": str(rollout.parent / "cards")})
    assert summary.counts == {"judgements_ok": 8}
    assert "another story" in json.dumps(server.requests)


# the lineage --------------------------------------------------------------------------------------------------------


@pytest.fixture
def prompts(tmp_path):
    folder = tmp_path / "prompts" / "judge"
    folder.mkdir(parents=True)
    (folder / "grade.jinja").write_text("{{ case }} {{ dialogue }} Grade reply {{ reply }}.")
    return folder


def test_the_lineage_holds_the_digests_of_prompts_and_rubric(rollout, server, prompts):
    shipped, _ = graded(rollout, server)
    own, _ = graded(rollout, server, "own.parquet", judge_options={"model": "judge", "prompts": str(prompts.parent)})
    first, second = (judge_record(path).details["judge_made_from"] for path in (shipped, own))
    assert first["rubric"] == second["rubric"]
    assert first["prompts"].startswith("sha256:")
    assert first["prompts"] != second["prompts"]


def test_a_complete_output_is_not_taken_for_one_of_another_prompt(rollout, server, prompts):
    options = {"judge_options": {"model": "judge", "prompts": str(prompts.parent)}, "resume": True}
    graded(rollout, server, **options)
    _, summary = graded(rollout, server, **options)
    assert summary.figures["already_complete"]
    (prompts / "grade.jinja").write_text("{{ case }} {{ dialogue }} Grade the reply {{ reply }}.")
    with pytest.raises(UsageError, match="graded with other texts: prompts"):
        graded(rollout, server, **options)


def test_a_rollout_is_not_resumed_with_other_cards_than_it_was_begun_with(rollout, server):
    values = pipeline(rollout.parent / "cards", server.url, timeout_seconds=10)
    config = RolloutConfig(**values, groups=2, samples=2, max_turns=2)
    policy = open_policy("policy", engine="openai", engine_options=config.engine_options)
    assert roll_out(policy, rollout, config, resume=True).figures["already_complete"]
    (rollout.parent / "cards" / "01.json").write_text(json.dumps(card("card-01", trigger="another story")))
    with pytest.raises(UsageError, match="environment_made_from"):
        roll_out(policy, rollout, config, resume=True)


# tokens -------------------------------------------------------------------------------------------------------------


def uses(rows, role):
    return [[use for use in row["usage"] if use["role"] == role] for row in rows]


def test_tokens_of_the_judge_stand_with_those_of_the_turn_and_are_not_counted_twice(rollout, server):
    before = read(rollout)
    output, _ = graded(rollout, server)
    rows = read(output)
    call = {"role": "judge", "prompt_tokens": 100, "cached_tokens": 40, "completion_tokens": 10}
    assert uses(rows, "judge") == [[call]] * 8
    for role in ("policy", "actor", "director"):
        assert uses(rows, role) == uses(before, role)
    again, _ = graded(output, server, "again.parquet", regrade=True)
    assert uses(read(again), "judge") == [[call]] * 8
    ledger = json.loads((rollout.parent / "judge.parquet.run.json").read_text())["calls"]["judge"]
    assert ledger["prompt_tokens"] == 8 * 100


def test_completing_a_judged_file_keeps_the_tokens_of_the_judgements_that_stay(rollout, server):
    server.faults = {1: "empty"}
    server.requests.clear()
    output, summary = graded(rollout, server, concurrency=1)
    assert summary.counts == {"judgements_missing": 1, "judgements_ok": 7}
    server.faults = {}
    whole, _ = graded(output, server, "whole.parquet", retry_missing=True)
    assert [len(found) for found in uses(read(whole), "judge")] == [1] * 8
