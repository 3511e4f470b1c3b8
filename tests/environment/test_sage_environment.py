"""The environment sage: emotion rules in the loop, what each side sees, what a broken simulator does, and training."""

import asyncio
import json

import pytest
from tests.benchmark_files import profile, write_lines
from tests.model_server import ModelServer

from dialrl.endpoint.calls import ModelCalls
from dialrl.endpoint.failure import ModelCallError
from dialrl.endpoint.settings import EndpointSettings
from dialrl.environment.base import PolicyReply
from dialrl.environment.registry import open_environment
from dialrl.environment.sage.appraisal import Appraisal, appraisal_schema, read_appraisal
from dialrl.environment.sage.profiles import load_profiles
from dialrl.environment.sage.rules import RULES
from dialrl.errors import InputError, UsageError


def is_appraisal(body):
    return "inner voice" in body["messages"][0]["content"]


def simulator(changes, line="It was the dog."):
    """A model that gives these changes in turn, and says ``line``."""
    left = iter(changes)

    def answer(body):
        return json.dumps({"analysis": "So.", "change": next(left)}) if is_appraisal(body) else line

    return answer


def talked(tmp_path, answer, replies=("Tell me.",), *, rules="sage", **options):
    """The steps of a conversation, the requests made, and the session."""
    profiles = write_lines(tmp_path / "profiles.jsonl", [profile("u")])
    made = {"profiles": str(profiles), "simulator": {"model": "s"}, "rules": rules, **options}
    environment = open_environment("sage", made)

    async def talk(url):
        calls = ModelCalls({"default": EndpointSettings(base_urls=[url], attempts=2, backoff_seconds=0.01)})
        environment.connect(calls)
        session = environment.open(environment.find("u"), 7)
        async with calls:
            steps = [await session.opening()]
            for turn, reply in enumerate(replies):
                steps.append(await session.respond(PolicyReply(reply, "stop", turn), None))
        return steps, session

    with ModelServer(answer) as server:
        steps, session = asyncio.run(talk(server.url))
    return steps, server.requests, session


def test_the_user_speaks_first_and_its_emotion_starts_where_the_rules_say(tmp_path):
    steps, _, session = talked(tmp_path, simulator([]), ())
    assert [message.role for message in steps[0].messages] == ["system", "user"]
    assert steps[0].messages[1].content == "Again!"
    assert session.emotion == 40.0
    assert talked(tmp_path, simulator([]), (), rules="rlver")[2].emotion == 30.0


def test_a_change_moves_the_emotion_by_the_rules_and_is_kept_with_its_thought(tmp_path):
    steps, _, _ = talked(tmp_path, simulator([25, -3]), ("a", "b"))
    assert [step.outcome for step in steps] == [0.4, 0.5, 0.47]
    assert vars(steps[1].director) == {"tool": "appraise", "argument": "+25", "guidance": "So."}
    assert steps[1].messages[0].content == "It was the dog."
    assert {usage.role for usage in steps[1].usage} == {"simulator"}
    assert len(steps[1].usage) == 2


@pytest.mark.parametrize(
    ("rules", "changes", "reason", "outcome"),
    [
        ("sage", [10] * 6, "success", 1.0),
        ("sage", [-10] * 4, "collapse", 0.0),
        ("rlver", [70], "success", 1.0),
        ("rlver", [-45], "collapse", 0.0),
    ],
)
def test_the_conversation_ends_where_the_emotion_does(tmp_path, rules, changes, reason, outcome):
    steps, _, _ = talked(tmp_path, simulator(changes), ["go on"] * len(changes), rules=rules)
    assert [step.end_reason for step in steps[:-1]] == [None] * len(changes)
    assert (steps[-1].end_reason, steps[-1].outcome) == (reason, outcome)


def test_a_farewell_ends_it(tmp_path):
    steps, _, _ = talked(tmp_path, simulator([2], "I must go. ###END###"))
    assert (steps[-1].end_reason, steps[-1].messages[0].content) == ("farewell", "I must go.")


def test_the_user_has_one_turn_more_than_the_policy(tmp_path):
    profiles = write_lines(tmp_path / "p.jsonl", [profile("u")])
    limits = [open_environment("sage", {"profiles": str(profiles), "rules": rules}).turn_limit for rules in RULES]
    assert limits == [9, 7]


def test_who_sees_what(tmp_path):
    steps, requests, _ = talked(tmp_path, simulator([5]), ("Your cake burned?",))
    appraising, speaking = requests
    assert appraising["response_format"]["json_schema"]["schema"]["properties"]["change"]["maximum"] == 10
    assert "Your cake burned?" in appraising["messages"][1]["content"]
    assert '"A baker."' in appraising["messages"][0]["content"]
    told = speaking["messages"][0]["content"]
    assert "Your emotion is now 45 of 100" in told
    assert [message["role"] for message in speaking["messages"]] == ["system", "user", "assistant", "user"]
    hidden = " ".join(message.content for step in steps for message in step.messages if message.role == "system")
    assert "baker" not in hidden
    assert "vent" not in hidden


def test_an_appraisal_without_a_number_is_asked_for_again_and_never_made_up(tmp_path):
    def answer(body):
        return "hard to say" if is_appraisal(body) else "Well."

    with pytest.raises(ModelCallError, match="no change of emotion, 2 times"):
        talked(tmp_path, answer)


def test_a_user_who_says_nothing_breaks_the_conversation(tmp_path):
    with pytest.raises(ModelCallError, match="said nothing"):
        talked(tmp_path, simulator([1], "  "))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"analysis": "He listens.", "change": "+5"}', Appraisal(5, "He listens.")),
        ('Well: {"change": -3.0} so.', Appraisal(-3, "")),
        ('```json\n{"analysis": 1, "change": 0}\n```', Appraisal(0, "")),
        ('{"analysis": "two\nlines", "change": 1}', Appraisal(1, "two\nlines")),
        ('{"change": true}', None),
        ('{"change": "a lot"}', None),
        ('{"change": null}', None),
        ("[5]", None),
        ("", None),
    ],
)
def test_an_appraisal_is_read_from_json_and_nothing_else(text, found):
    assert read_appraisal(text) == found


def test_the_schema_bounds_what_it_can():
    assert "maximum" not in appraisal_schema(None)["properties"]["change"]
    assert appraisal_schema(10)["properties"]["analysis"]["maxLength"] > 0


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({**profile("a"), "task": 3}, "line 2, field 'task'"),
        ({**profile("a"), "id": ""}, "line 2, field 'id'"),
        ({**profile("b")}, "line 2, field 'id': got 'b', which stands on line 1 too"),
    ],
)
def test_profiles_are_refused_with_line_and_field(tmp_path, line, message):
    path = write_lines(tmp_path / "p.jsonl", [profile("b"), line])
    with pytest.raises(InputError, match=message):
        load_profiles(path)


def test_profiles_are_a_test_split_unless_they_say_otherwise(tmp_path):
    path = write_lines(tmp_path / "p.jsonl", [profile("a"), {**profile("b"), "split": "train"}])
    environment = open_environment("sage", {"profiles": str(path)})
    assert [scenario.scenario_id for scenario in environment.scenarios("train")] == ["b"]
    assert [scenario.scenario_id for scenario in environment.scenarios("test")] == ["a"]
    with pytest.raises(UsageError, match="has no profiles of the split 'dev'"):
        environment.scenarios("dev")
    with pytest.raises(UsageError, match="simulator"):
        environment.open(environment.find("a"), 0)


def test_a_policy_trains_on_the_final_emotion(tmp_path, policy):
    import pyarrow.parquet as pq

    from dialrl.returns.config import ReturnsConfig
    from dialrl.returns.stage import compute_returns
    from dialrl.rollout.config import RolloutConfig
    from dialrl.rollout.policy import open_policy
    from dialrl.rollout.stage import roll_out

    profiles = write_lines(tmp_path / "p.jsonl", [{**profile(key), "split": "train"} for key in "ab"])

    def moody(body):
        change = 25 if len(body["messages"][1]["content"]) % 2 else -30
        return json.dumps({"analysis": "", "change": change}) if is_appraisal(body) else "Well."

    with ModelServer(moody) as server:
        config = RolloutConfig(
            environment="sage",
            environment_options={"profiles": str(profiles), "simulator": {"model": "s"}, "rules": "rlver"},
            groups=2,
            samples=4,
            max_reply_tokens=6,
            endpoints={"default": EndpointSettings(base_urls=[server.url])},
        )
        roll_out(open_policy(policy), tmp_path / "rollout.parquet", config)
    judged = ReturnsConfig(reward=("outcome",), gamma=1.0)
    compute_returns(tmp_path / "rollout.parquet", tmp_path / "returns.parquet", judged)
    rows = pq.read_table(tmp_path / "returns.parquet").to_pylist()
    last = [row for row in rows if row["end_reason"] is not None]
    assert len(last) == 8
    assert {row["end_reason"] for row in last} <= {"success", "collapse", "turn_limit"}
    assert [row["return"] for row in last] == [row["outcome"] for row in last]
    assert len({row["return"] for row in last}) > 1
    assert all(0.0 <= row["outcome"] <= 1.0 for row in last)
