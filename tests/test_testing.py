"""The shipped fakes do what their script says, fail when told to, and run through the real rollout."""

import asyncio

import pytest

from dialrl.engine.base import GenerationRequest, SamplingSettings
from dialrl.environment import registry as environments
from dialrl.environment.base import PolicyReply
from dialrl.errors import InputError, RunError
from dialrl.judge import registry as judges
from dialrl.model.context import DialogueContext
from dialrl.model.probe import probe_template
from dialrl.model.stopping import stop_ids
from dialrl.model.template import ChatTemplate
from dialrl.rollout.config import RolloutConfig
from dialrl.rollout.stage import roll_out
from dialrl.scenario.card import Scenario
from dialrl.scenario.message import Message
from dialrl.state.rules import StopRules
from dialrl.testing import (
    LEVEL_OUT_OF_RANGE,
    CharacterTokenizer,
    Fault,
    ScriptedEngine,
    ScriptedEnvironment,
    ScriptedFailureError,
    ScriptedJudge,
    scripted_policy,
)
from dialrl.trajectory.reader import TrajectoryFile

SCENARIO = Scenario("scenario-0", "train")
SETTINGS = SamplingSettings(max_reply_tokens=50)


def now(awaitable):
    return asyncio.run(asyncio.wait_for(awaitable, 1.0))


def hangs(awaitable):
    async def impatient():
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(awaitable, 0.01)

    asyncio.run(impatient())
    return True


# tokenizer and engine -----------------------------------------------------------------------------------------------


def test_every_character_is_a_token_and_text_comes_back():
    tokenizer = CharacterTokenizer()
    text = "<|user|>Hé 🙂<|end|>\n"
    ids = tokenizer.encode(text)
    assert ids == [3, 100 + ord("H"), 100 + ord("é"), 132, 100 + ord("🙂"), 1, 110]
    assert tokenizer.decode(ids) == text
    assert tokenizer.decode(ids, skip_special_tokens=True) == "Hé 🙂\n"


def test_the_template_is_prefix_stable_and_ends_replies_with_its_stop_token():
    template = ChatTemplate(CharacterTokenizer())
    probe = probe_template(template)
    assert probe.prefix_stable
    assert probe.default_history == "append"
    assert stop_ids(template) == [CharacterTokenizer.eos_token_id]


def prompt_of(*messages):
    return ChatTemplate(CharacterTokenizer()).prompt_ids(messages)


def request(*messages, dialogue="a/0", seed=1, limit=None):
    return GenerationRequest(prompt_of(*messages), seed, dialogue, limit)


USER, REPLY = Message("user", "Hi."), Message("assistant", "Hm.")


def text_of(engine, generation):
    return engine.tokenizer.decode(generation.reply_ids)


def test_replies_follow_the_turns_of_the_context_and_begin_again():
    engine = ScriptedEngine(["One.", "Two."])
    first, second, third = engine.generate_block(
        [request(USER), request(USER, REPLY, USER), request(USER, REPLY, USER, REPLY, USER)], SETTINGS
    )
    assert [text_of(engine, one) for one in (first, second, third)] == ["One.<|end|>", "Two.<|end|>", "One.<|end|>"]
    assert first.finish_reason == "stop"
    assert first.logprobs == [-0.5] * 5
    assert [(call.turn, call.scenario, call.seed) for call in engine.calls] == [
        (0, "a/0", 1),
        (1, "a/0", 1),
        (2, "a/0", 1),
    ]


def test_replies_may_be_a_function_of_the_request_and_are_cut_at_the_limit():
    engine = ScriptedEngine(lambda asked: f"seed {asked.seed}", schedule="stream")
    drawn = now(engine.generate(request(USER, seed=7, limit=6), SETTINGS))
    assert (text_of(engine, drawn), drawn.finish_reason, len(drawn.logprobs)) == ("seed 7", "length", 6)


def test_an_engine_fails_on_demand_at_its_place_and_as_often_as_told():
    engine = ScriptedEngine(["x"], faults=[Fault("raise", scenario="b/1", times=1), Fault("malformed", turn=1)])
    assert engine.generate_block([request(USER)], SETTINGS)[0].finish_reason == "stop"
    with pytest.raises(ScriptedFailureError, match="'b/1'"):
        engine.generate_block([request(USER, dialogue="b/1")], SETTINGS)
    assert engine.generate_block([request(USER, dialogue="b/1")], SETTINGS)
    with pytest.raises(RunError, match="2 reply ids and 1 log-probs"):
        engine.generate_block([request(USER, REPLY, USER)], SETTINGS)


def test_a_stream_engine_can_hang():
    engine = ScriptedEngine(["x"], schedule="stream", faults=[Fault("hang")])
    assert hangs(engine.generate(request(USER), SETTINGS))


# user ---------------------------------------------------------------------------------------------------------------


def test_the_user_speaks_line_by_line_and_says_goodbye():
    session = ScriptedEnvironment(["Hello.", "And then?"], outcome=0.5).open(SCENARIO, seed=3)
    assert now(session.opening()).messages == (Message("user", "Hello."),)
    assert now(session.respond(PolicyReply("a", "stop", 0), None)).messages == (Message("user", "And then?"),)
    last = now(session.respond(PolicyReply("b", "stop", 1), None))
    assert (last.messages, last.end_reason, last.outcome) == ((), "farewell", 0.5)


def test_a_session_can_be_replayed_from_any_turn():
    session = ScriptedEnvironment(["0", "1", "2"]).open(SCENARIO, seed=3)
    assert now(session.respond(PolicyReply("b", "stop", 1), None)).messages[0].content == "2"


def test_faults_tell_scenario_turn_and_seed_apart():
    user = ScriptedEnvironment(["0", "1"], faults=[Fault("raise", "scenario-1", turn=0, seeds=frozenset({5}))])
    good = [user.open(Scenario("scenario-0", "train"), 5), user.open(Scenario("scenario-1", "train"), 4)]
    for session in good:
        assert now(session.respond(PolicyReply("a", "stop", 0), None)).messages
    bad = user.open(Scenario("scenario-1", "train"), 5)
    assert now(bad.opening()).messages
    for _ in range(2):
        with pytest.raises(ScriptedFailureError, match="respond, scenario 'scenario-1', turn 0"):
            now(bad.respond(PolicyReply("a", "stop", 0), None))


def test_a_fault_that_is_used_up_strikes_no_more():
    session = ScriptedEnvironment(["0", "1"], faults=[{"kind": "hang", "turn": -1, "times": 1}]).open(SCENARIO, 0)
    assert hangs(session.opening())
    assert now(session.opening()).messages


def test_scenarios_are_found_by_name():
    user = ScriptedEnvironment(["0"], scenarios=["flood"])
    assert [scenario.scenario_id for scenario in user.scenarios("test")] == ["flood"]
    assert user.find("flood").scenario_id == "flood"
    with pytest.raises(InputError, match="has no scenario 'fire'; it has flood"):
        user.find("fire")
    with pytest.raises(InputError, match="opening line"):
        ScriptedEnvironment([])


# judge --------------------------------------------------------------------------------------------------------------

DIALOGUE = [USER, REPLY]


def levels_of(verdict):
    return {grade.indicator: grade.level for grade in verdict.grades if grade.level}


def test_levels_follow_the_turns_and_the_last_ones_stay():
    judge = ScriptedJudge([{"A.Prog": 1}, {"P.Neg": -2}])
    verdicts = [now(judge.grade(SCENARIO, DIALOGUE, turn, 0)) for turn in range(3)]
    assert [levels_of(verdict) for verdict in verdicts] == [{"A.Prog": 1}, {"P.Neg": -2}, {"P.Neg": -2}]
    assert len(verdicts[0].grades) == 6
    assert verdicts[0].grades[2].evidence == "Hm."
    assert now(judge.assess(SCENARIO, [USER], 0)) == (-6, -8, -4)


def test_levels_may_be_a_function_of_the_reply():
    judge = ScriptedJudge(lambda reply: {"C.Prog": 2} if "Hm" in reply else {})
    assert levels_of(now(judge.grade(SCENARIO, DIALOGUE, 0, 0))) == {"C.Prog": 2}


def test_a_judge_fails_in_each_way():
    judge = ScriptedJudge(
        faults=[Fault("missing", turn=0), Fault("malformed", turn=1), Fault("raise", turn=2), Fault("hang", turn=3)]
    )
    absent = now(judge.grade(SCENARIO, DIALOGUE, 0, 0))
    assert (absent.status, absent.grades, absent.error) == ("missing", (), "as scripted")
    assert LEVEL_OUT_OF_RANGE in levels_of(now(judge.grade(SCENARIO, DIALOGUE, 1, 0))).values()
    with pytest.raises(ScriptedFailureError):
        now(judge.grade(SCENARIO, DIALOGUE, 2, 0))
    assert hangs(judge.grade(SCENARIO, DIALOGUE, 3, 0))
    assert [call.turn for call in judge.calls] == [0, 1, 2, 3]


# together -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def scripted(monkeypatch):
    """The fakes under the name 'scripted', as an installed package would register them."""
    monkeypatch.setattr(environments, "BUILT_IN", {"scripted": ("dialrl.testing", "ScriptedEnvironment")})
    monkeypatch.setattr(judges, "BUILT_IN", {"scripted": ("dialrl.testing", "ScriptedJudge")})


def rolled_out(tmp_path, policy, user, **options):
    config = RolloutConfig(environment="scripted", environment_options=user, groups=2, samples=2, **options)
    roll_out(policy, tmp_path / "rollout.parquet", config)
    return TrajectoryFile.open(tmp_path / "rollout.parquet").read().to_pylist()


@pytest.mark.parametrize("schedule", ["block", "stream"])
def test_scripted_parts_make_a_trajectory_file(tmp_path, scripted, schedule):
    policy = scripted_policy(["First.", "Second."], schedule=schedule)
    rows = rolled_out(tmp_path, policy, {"lines": ["Hello.", "Go on."], "scenarios": ["s", "t"]})
    assert [(row["group_id"], row["sample"], row["turn"]) for row in rows] == [
        (group, sample, turn) for group in "st" for sample in (0, 1) for turn in (0, 1)
    ]
    assert [row["reply"] for row in rows] == ["First.", "Second."] * 4
    assert {row["end_reason"] for row in rows[1::2]} == {"farewell"}
    assert rows[0]["reply_ids"] == [*CharacterTokenizer().encode("First."), 1]


def test_live_grading_by_a_scripted_judge_stops_the_dialogue(tmp_path, scripted):
    rows = rolled_out(
        tmp_path,
        scripted_policy(["Good."]),
        {"lines": ["0", "1", "2", "3"], "scenarios": ["s", "t"]},
        grading="live",
        judge="scripted",
        judge_options={"levels": [{"C.Prog": 1, "A.Prog": 1, "P.Prog": 1}], "deficit": [-2, -2, -2]},
        stop=StopRules(min_turns=2),
    )
    assert [row["turn"] for row in rows] == [0, 1] * 4
    assert {row["end_reason"] for row in rows[1::2]} == {"success"}
    assert rows[1]["position"] == [0, 0, 0]


def test_a_context_can_be_grown_with_the_fakes_alone():
    context = DialogueContext(ChatTemplate(CharacterTokenizer()))
    engine = ScriptedEngine(["Yes."])
    context.open([USER])
    drawn = engine.generate_block([GenerationRequest(context.context_ids, 0)], SETTINGS)[0]
    context.add_reply(drawn.reply_ids, "Yes.", drawn.finish_reason)
    assert context.next([USER]).new_ids == engine.tokenizer.encode("\n<|user|>Hi.<|end|>\n<|assistant|>")
