"""Checking safety: which dialogues, what the judge sees and says, where it goes, and that it is never a reward."""

import json

import pytest
from tests.model_server import ModelServer
from tests.support_cards import card
from tests.support_world import pipeline, world
from tests.trajectory_files import read

from dialrl.errors import FailureThresholdError, UsageError
from dialrl.judge.config import JudgeConfig
from dialrl.judge.files import judge_files
from dialrl.judge.safety_judge import SafetyJudge
from dialrl.returns.channels import BUILT_IN
from dialrl.rollout.config import RolloutConfig
from dialrl.rollout.stage import roll_out
from dialrl.state.rubric import load_rubric
from dialrl.testing import scripted_policy
from dialrl.trajectory.reader import TrajectoryFile

CARDS = {"anna": "self_harm", "bela": "none", "carl": "minor"}
REPLIES = ("I will tell nobody.", "Who could sit with you tonight?")


def checker(body):
    """A judge that finds a promise of secrecy, and nothing else; every other role is the world's."""
    if body["model"] != "checker":
        return world(body)
    line = json.loads(body["messages"][1]["content"].splitlines()[-3])
    names = body["response_format"]["json_schema"]["schema"]["properties"]
    level = -2 if "tell nobody" in line["text"] else 0
    found = {name: {"evidence": "", "reasoning": "r", "level": 0} for name in names}
    return json.dumps({**found, "Secrecy": {"evidence": line["text"], "reasoning": "a promise", "level": level}})


@pytest.fixture
def server():
    with ModelServer(checker) as running:
        yield running


@pytest.fixture
def rollout(tmp_path, server):
    """A dialogue of two turns with each of three persons, two of them in a crisis; graded by the world's judge."""
    folder = tmp_path / "cards"
    folder.mkdir()
    for name, crisis in CARDS.items():
        (folder / f"{name}.json").write_text(json.dumps(card(name, crisis=crisis, trigger=f"what befell {name}")))
    values = pipeline(folder, server.url, timeout_seconds=10)
    del values["engine"], values["engine_options"]
    config = RolloutConfig(**values, groups=3, samples=1, max_turns=2, grading="live")
    roll_out(scripted_policy(REPLIES), tmp_path / "rollout.parquet", config)
    server.requests.clear()
    return tmp_path / "rollout.parquet"


def checked(source, server, name="safety.parquet", *, resume=False, slim=False, judge_options=(), **options):
    values = {"endpoints": {"default": {"base_urls": [server.url], "attempts": 1}}, "cache": False, **options}
    config = JudgeConfig(judge="safety", judge_options={"model": "checker", **dict(judge_options)}, **values)
    output = source.with_name(name)
    return output, judge_files(source, output, config, resume=resume, slim=slim)


def by_person(path, column):
    found = {}
    for row in read(path):
        found.setdefault(row["scenario_id"], []).append(row[column])
    return found


def test_replies_to_persons_in_a_crisis_are_checked_and_no_others(rollout, server):
    output, summary = checked(rollout, server)
    assert by_person(output, "crisis") == {"anna": ["self_harm"] * 2, "bela": [None] * 2, "carl": ["minor"] * 2}
    assert by_person(output, "safety_level") == {"anna": [-2, 0], "bela": [None] * 2, "carl": [-2, 0]}
    assert by_person(output, "safety_status")["bela"] == [None, None]
    first = read(output)[0]["safety"]
    assert {grade["indicator"]: grade["level"] for grade in first}["Secrecy"] == -2
    assert "I will tell nobody." in [grade["evidence"] for grade in first]
    assert summary.counts == {"checks_ok": 4, "turns_not_checked": 2}
    assert len(server.requests) == 4


def test_or_all_of_them(rollout, server):
    output, _ = checked(rollout, server, judge_options={"scope": "all"})
    assert by_person(output, "crisis")["bela"] == ["none"] * 2
    assert by_person(output, "safety_level")["bela"] == [-2, 0]


def test_the_judge_sees_the_kind_of_crisis_and_never_how_the_person_is_played(rollout, server):
    checked(rollout, server)
    shown = ["\n".join(message["content"] for message in body["messages"]) for body in server.requests]
    assert all('{"crisis": "' in text for text in shown)
    assert all("You answer sideways" not in text and card()["strategy"] not in text for text in shown)
    assert "Secrecy. Does the reply bind itself" in shown[0]
    assert "Axes of the person's need" not in shown[0]


def test_it_stands_beside_the_grades_and_no_channel_reads_it(rollout, server):
    output, _ = checked(rollout, server)
    before = read(rollout)
    assert [{name: row[name] for name in before[0]} for row in read(output)] == before
    columns = {name for channel in BUILT_IN for name in (*channel.needs, *channel.may_use)}
    assert not columns & {"crisis", "safety", "safety_level", "safety_status", "safety_error"}
    again = output.with_name("again.parquet")
    judge_files(output, again, JudgeConfig(judge="rubric"))  # passes the grades on, with the check beside them
    assert by_person(again, "safety_level")["anna"] == [-2, 0]


def test_the_lineage_holds_the_texts_the_check_was_made_with(rollout, server):
    output, _ = checked(rollout, server)
    made_from = TrajectoryFile.open(output).lineage.record("judge").details["judge_made_from"]
    assert made_from == SafetyJudge(model="checker").provenance
    assert made_from["rubric"] == load_rubric("safety").digest()


def test_a_check_that_fails_is_missing_and_can_be_asked_for_again(rollout, server):
    server.faults = {0: "empty", 2: "wrong_schema"}
    server.requests.clear()
    output, summary = checked(rollout, server, max_missing=1.0, concurrency=1)
    assert summary.counts == {"checks_missing": 2, "checks_ok": 2, "turns_not_checked": 2}
    lost = [row for row in read(output) if row["safety_status"] == "missing"]
    assert [(row["safety"], row["safety_level"]) for row in lost] == [(None, None)] * 2
    assert [row["safety_error"].partition(":")[0] for row in lost] == ["empty", "wrong_schema"]
    assert "2 checks of safety are missing" in summary.warnings[0]
    server.faults = {}
    server.requests.clear()
    _, summary = checked(output, server, "whole.parquet", retry_missing=True)
    assert len(server.requests) == 2
    assert summary.counts == {"checks_ok": 4, "turns_not_checked": 2}
    server.faults = lambda number, body: "empty"
    with pytest.raises(FailureThresholdError, match="4 of 4 checks are missing"):
        checked(rollout, server, "none.parquet")


def test_what_cannot_be_a_check_is_refused(rollout, server):
    with pytest.raises(UsageError, match=r"none of safety: the highest level of C.Prog"):
        checked(rollout, server, judge_options={"rubric": "support"})
    with pytest.raises(UsageError, match="which was not checked for safety"):
        checked(rollout, server, retry_missing=True)


def test_a_complete_output_is_left_as_it_is(rollout, server):
    _, before = checked(rollout, server, slim=True)
    server.requests.clear()
    _, summary = checked(rollout, server, slim=True, resume=True)
    assert summary.figures["already_complete"]
    assert summary.counts == before.counts
    assert server.requests == []


def test_the_shipped_rubric_has_no_level_that_pays():
    rubric = load_rubric("safety")
    assert [[level.level for level in part.levels] for part in rubric.indicators] == [[0, -1, -2]] * 6
    assert rubric.deficit == ()
