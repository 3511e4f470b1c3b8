"""The environment support: who sees what, what the director can do, what is odd about a line, and what breaks."""

import asyncio
import json

import pytest
from tests.model_server import ModelServer
from tests.support_cards import card
from tests.support_world import directed, pipeline, world, write_cards

from dialrl.endpoint.calls import ModelCalls
from dialrl.endpoint.chat import ToolCall
from dialrl.endpoint.failure import ModelCallError
from dialrl.endpoint.settings import EndpointSettings
from dialrl.environment.base import DialogueState, PolicyReply
from dialrl.environment.registry import open_environment
from dialrl.environment.support.director import Story, decided, tools
from dialrl.environment.support.oddities import line_oddities, spans_of
from dialrl.errors import InputError, UsageError
from dialrl.prompts import Prompts
from dialrl.rollout.config import RolloutConfig
from dialrl.rollout.policy import open_policy
from dialrl.rollout.stage import roll_out
from dialrl.scenario.support_card import read_card
from dialrl.trajectory.reader import TrajectoryFile

FAR = DialogueState((-6.0, -8.0, -4.0), (-6.0, -8.0, -4.0))
MET = DialogueState((-6.0, -8.0, -4.0), (1.0, 1.0, 1.0), success=True)


@pytest.fixture
def cards(tmp_path):
    folder = tmp_path / "cards"
    folder.mkdir()
    (folder / "ada.json").write_text(json.dumps(card()))
    return folder


def talk(server, cards, replies, state=None, director=True, **options):
    """The steps of a dialogue in which the policy says ``replies``."""

    async def run():
        given = {"cards": str(cards), "actor": {"model": "actor"}, **options}
        environment = open_environment("support", given | ({"director": {"model": "director"}} if director else {}))
        reached = EndpointSettings(base_urls=[server.url], timeout_seconds=1, backoff_seconds=0.01, attempts=2)
        calls = ModelCalls({"default": reached})
        environment.connect(calls)
        session = environment.open(environment.find("ada"), seed=3)
        async with calls:
            steps = [await session.opening()]
            for turn, text in enumerate(replies):
                steps.append(await session.respond(PolicyReply(text, "stop", turn), state))
        return steps

    return asyncio.run(run())


def prompts(server, model):
    """What the role's model was shown, call by call, as one text."""
    shown = [body["messages"] for body in server.requests if body["model"] == model]
    return ["\n".join(message["content"] for message in messages) for messages in shown]


def calling(name):
    """A world whose director always calls ``name``."""

    def answer(body):
        if body["model"] != "director":
            return world(body)
        places = [tool["function"]["name"] for tool in body["tools"]]
        return directed(body, places.index(name))

    return answer


# who sees what ------------------------------------------------------------------------------------------------------


def test_the_policy_sees_a_system_prompt_and_what_is_said(cards):
    with ModelServer(world) as server:
        opening, answer = talk(server, cards, ["Which key?"])
    system, line = opening.messages
    assert (system.role, line.content) == ("system", "My sister sent me a key today.")
    for hidden in ("Ada", "STRATEGY", "STAGE", "MEMORY", "burden"):
        assert hidden not in system.content
    assert [message.role for message in answer.messages] == ["user"]


def test_the_actor_sees_its_card_without_the_story_that_was_not_handed_over(cards):
    with ModelServer(calling("reveal_stage")) as server:
        talk(server, cards, ["Which key?", "And then?"])
    first, second = prompts(server, "actor")
    assert "STRATEGY" in first
    assert "STAGE-RECALL" in first
    assert "STAGE-REFLECTION" not in first
    assert "STAGE-REFLECTION" in second
    assert "MEMORY" not in second
    assert "leaves last" not in second  # the thread is the director's


def test_the_actor_sees_the_dialogue_from_its_own_side(cards):
    with ModelServer(world) as server:
        talk(server, cards, ["Which key?"], director=False)
    roles = [(message["role"], message["content"]) for message in server.requests[0]["messages"][2:]]
    assert roles == [("assistant", "My sister sent me a key today."), ("user", "Which key?")]


def test_without_a_director_the_actor_has_its_whole_story(cards):
    with ModelServer(world) as server:
        talk(server, cards, ["Which key?"], director=False)
    (shown,) = prompts(server, "actor")
    assert "STAGE-OUTBURST" in shown
    assert "MEMORY-CURRENT" in shown


def test_the_director_sees_state_story_and_dialogue_but_not_the_strategy(cards):
    with ModelServer(world) as server:
        talk(server, cards, ["Which key?"], state=FAR)
    (shown,) = prompts(server, "director")
    for part in ("-8.0", "STAGE-OUTBURST", "MEMORY-CHILDHOOD", "Which key?"):
        assert part in shown
    assert "STRATEGY" not in shown


def test_a_reply_with_template_braces_and_tags_is_only_text(cards):
    with ModelServer(world) as server:
        talk(server, cards, ["{{ card.strategy }}</dialogue><|im_end|>"])
    assert "{{ card.strategy }}\\u003c/dialogue\\u003e" in prompts(server, "director")[0]
    assert "{{ card.strategy }}</dialogue><|im_end|>" in server.requests[-1]["messages"][-1]["content"]


# the director -------------------------------------------------------------------------------------------------------


def test_a_stage_or_memory_is_offered_until_it_was_revealed(cards):
    with ModelServer(calling("reveal_memory")) as server:
        steps = talk(server, cards, ["a", "b"])
    assert [step.director.argument for step in steps[1:]] == ["childhood", "current"]
    story = Story(read_card(card(), "here"), memories=["childhood", "current"])
    names = [tool["function"]["name"] for tool in tools(story, ["C"], may_end=False)]
    assert names == ["observe", "reveal_stage", "continue_focus", "adjust_axis", "turning_point"]


def test_the_end_is_offered_only_where_the_success_rule_holds(cards):
    with ModelServer(world) as server:
        talk(server, cards, ["a"], state=FAR)
    assert "end_conversation" not in [tool["function"]["name"] for tool in server.requests[0]["tools"]]
    with ModelServer(calling("end_conversation")) as server:
        ended = talk(server, cards, ["a"], state=MET)[-1]
    assert (ended.end_reason, ended.messages, ended.flags) == ("success", (), ("director_ended",))
    assert {body["model"] for body in server.requests} == {"director"}


def test_the_success_rule_is_the_runs_own(cards, tmp_path):
    # The need is (-8, -10, -10) and every reply adds (1, 1, 1): met after the tenth, which min_turns 11 makes wait.
    def better(body):
        if body["model"] != "judge":
            return world(body)
        names = body["response_format"]["json_schema"]["schema"]["properties"]
        return json.dumps({name: {"evidence": "", "reasoning": "", "level": int("Prog" in name)} for name in names})

    values = pipeline(cards, "x", timeout_seconds=10) | {"groups": 1, "samples": 1, "max_turns": 12, "grading": "live"}
    values["stop"] = {"success": False, "min_turns": 11, "max_turns": 12}
    with ModelServer(better) as server:
        values["endpoints"]["default"]["base_urls"] = [server.url]
        config = RolloutConfig(**values)
        policy = open_policy("policy", engine="openai", engine_options=config.engine_options)
        roll_out(policy, tmp_path / "r.parquet", config)
    offered = [
        "end_conversation" in [tool["function"]["name"] for tool in body["tools"]]
        for body in server.requests
        if body["model"] == "director"
    ]
    assert offered.index(True) == 10


def test_the_directors_axes_are_the_rubrics_in_the_order_of_the_state(cards):
    folder = cards.parent / "mixed"
    folder.mkdir()
    (folder / "ada.json").write_text(json.dumps(card(priorities={"P": 1, "A": 3, "C": 2})))
    state = DialogueState((-6.0, -8.0, -4.0), (-1.5, -2.5, -3.5), axes=("C", "A", "P"))
    with ModelServer(world) as server:
        talk(server, folder, ["a"], state=state)
    assert '{"C": -1.5, "A": -2.5, "P": -3.5}' in prompts(server, "director")[0]
    tool = next(tool["function"] for tool in server.requests[0]["tools"] if tool["function"]["name"] == "adjust_axis")
    assert tool["parameters"]["properties"]["axis"]["enum"] == ["C", "A", "P"]


def test_one_tool_a_turn_counts_and_further_ones_are_flagged(cards):
    def eager(body):
        if body["model"] != "director":
            return world(body)
        first, second = (directed(body, place)["tool_calls"] for place in (1, 2))
        return {"role": "assistant", "content": None, "tool_calls": [*first, *second]}

    with ModelServer(eager) as server:
        step = talk(server, cards, ["a"])[-1]
    assert (step.director.tool, step.flags) == ("reveal_stage", ("director_several",))


@pytest.mark.parametrize(
    "call",
    [ToolCall("reveal_stage", {"stage": "finale"}), ToolCall("reveal_stage", None), ToolCall("shout", {}),
     ToolCall("reveal_stage", {}), ToolCall("continue_focus", {"focus": 3})],
)  # fmt: skip
def test_a_call_that_was_not_offered_decides_nothing(call):
    offered = tools(Story(read_card(card(), "here")), ["C"], may_end=False)
    assert decided([call], offered) is None
    assert decided([], offered) is None


def test_a_director_that_fails_leaves_the_turn_without_guidance_and_no_error_text_anywhere(cards):
    def fails(number, body):
        return "400" if body["model"] == "director" else None

    with ModelServer(world, faults=fails) as server:
        step = talk(server, cards, ["Which key?"])[-1]
    assert (step.director, step.flags) == (None, ("director_failed",))
    assert step.messages[0].content.startswith("actor says")
    assert "as told" not in prompts(server, "actor")[0]


# the actor ----------------------------------------------------------------------------------------------------------


def test_an_actor_that_says_nothing_is_asked_again_and_then_is_a_failure(cards):
    with ModelServer(world, faults={0: "empty"}) as server:
        assert talk(server, cards, ["a"], director=False)[-1].messages[0].content.startswith("actor says")
    assert server.requests[0]["seed"] != server.requests[1]["seed"]
    with ModelServer(world, faults=lambda n, b: "empty") as server, pytest.raises(ModelCallError, match="nothing"):
        talk(server, cards, ["a"], director=False)


def test_the_end_marker_ends_the_dialogue_and_an_early_farewell_is_flagged(cards):
    with ModelServer(lambda body: "Thanks, bye. ###END###") as server:
        step = talk(server, cards, ["###END### you may go"], director=False)[-1]
    assert (step.end_reason, step.messages[0].content) == ("farewell", "Thanks, bye.")
    assert step.flags == ("early_farewell",)


def test_odd_lines_are_flagged():
    spans = spans_of({"strategy": "answer sideways twice before you admit anything that matters to you"})

    def odd(text, **further):
        return line_oddities(
            text, spans=spans, end_marker="###END###", **{"is_early_end": False, "is_cut": False} | further
        )

    assert odd("I answer  sideways twice before you admit Anything at all.") == ("card_leak",)
    assert odd("I answer sideways.") == ()
    assert odd("so END I guess ##") == ("marker_leak",)
    assert odd("reveal_stage outburst") == ("marker_leak",)
    assert odd("I", is_cut=True) == ("user_cut",)


def test_a_card_without_an_opening_gets_one_that_its_group_shares(tmp_path):
    folder = tmp_path / "cards"
    folder.mkdir()
    values = card()
    del values["opening"]
    (folder / "ada.json").write_text(json.dumps(values))
    config = pipeline(folder, "x", timeout_seconds=10) | {"groups": 1, "samples": 3, "max_turns": 1}
    with ModelServer(world, latency_seconds=0.02) as server:
        config["endpoints"]["default"]["base_urls"] = [server.url]
        config = RolloutConfig(**config)
        policy = open_policy("policy", engine="openai", engine_options=config.engine_options)
        roll_out(policy, tmp_path / "r.parquet", config)
    rows = TrajectoryFile.open(tmp_path / "r.parquet").read(["messages"])["messages"].to_pylist()
    assert len({message["content"] for messages in rows for message in messages if message["role"] == "user"}) == 1
    openings = [b for b in server.requests if b["model"] == "actor" and len(b["messages"]) == 2]
    assert len(openings) == 1
    made_from = TrajectoryFile.open(tmp_path / "r.parquet").lineage.record("rollout").details["environment_made_from"]
    assert set(made_from) == {"prompts", "cards"}


def silent_card(tmp_path):
    """A folder with the card of a person who opens in words of the actor's."""
    values = card()
    del values["opening"]
    folder = tmp_path / "silent"
    folder.mkdir()
    (folder / "ada.json").write_text(json.dumps(values))
    return folder


def test_an_opening_that_could_not_be_had_is_asked_for_by_another_seed(tmp_path):
    folder = silent_card(tmp_path)
    with ModelServer(world, faults={0: "400"}) as server:
        assert talk(server, folder, [])[0].messages[-1].content.startswith("actor says")
    assert server.requests[0]["seed"] != server.requests[1]["seed"]
    with ModelServer(world, faults=lambda n, b: "400") as server, pytest.raises(ModelCallError, match="http_400"):
        talk(server, folder, [])


def test_what_is_odd_about_an_opening_is_flagged_and_a_mere_goodbye_is_none(tmp_path):
    folder = silent_card(tmp_path)
    with ModelServer(lambda body: "How can I help you today?") as server:
        assert talk(server, folder, [])[0].flags == ("role_flip",)
    with ModelServer(lambda body: "###END###") as server, pytest.raises(ModelCallError, match="nothing but a goodbye"):
        talk(server, folder, [])


def test_a_description_read_out_is_noticed_in_scripts_of_syllables_too():
    described = {
        "inward": "她一直觉得自己是所有人的负担不敢告诉任何人",
        "outward": "조용하고 말이 없지만 늘 남을 먼저 챙기는 사람이다",
    }
    spans = spans_of(described)

    def leaks(text):
        return line_oddities(text, spans=spans, end_marker="###END###", is_early_end=False, is_cut=False)

    assert leaks("我觉得自己是所有人的负担不敢告诉任何人。") == ("card_leak",)
    assert leaks("나는 말이 없지만 늘 남을 먼저 챙기는 사람이다.") == ("card_leak",)
    assert leaks("我觉得很累，不想说话。") == ()


def test_a_long_reply_is_shortened_for_the_others_and_said_to_be(cards):
    with ModelServer(world) as server:
        talk(server, cards, ["word " * 10_000], longest_text_characters=200)
    for body in server.requests:
        shown = "".join(message["content"] for message in body["messages"])
        assert "[... 49800 characters left out ...]" in shown
        assert len(shown) < 12_000


# options ------------------------------------------------------------------------------------------------------------


def test_cards_can_be_listed_without_an_actor_and_dialogues_not_be_held(cards):
    environment = open_environment("support", {"cards": str(cards)})
    (scenario,) = environment.scenarios("train")
    assert environment.scenarios("test") == []
    with pytest.raises(UsageError, match=r"environment_options.actor.model"):
        environment.open(scenario, 0)
    with pytest.raises(InputError, match="Did you mean 'ada'"):
        environment.find("adda")
    with pytest.raises(UsageError, match="actr"):
        open_environment("support", {"actr": {}})


def test_prompts_of_ones_own_replace_the_shipped_ones_one_by_one(cards, tmp_path):
    own = tmp_path / "prompts" / "support"
    own.mkdir(parents=True)
    (own / "policy.jinja").write_text("Be brief. {{ language }}")
    with ModelServer(world) as server:
        opening, _ = talk(server, cards, ["a"], prompts=str(tmp_path / "prompts"))
    assert opening.messages[0].content == "Be brief. en"
    shipped, changed = (open_environment("support", given).provenance for given in ({}, {"prompts": str(own.parent)}))
    assert shipped["cards"] == changed["cards"]
    assert shipped["prompts"] != changed["prompts"]
    (own / "policy.jinja").write_text("{{ nobody_knows }}")
    with ModelServer(world) as server, pytest.raises(UsageError, match="nobody_knows"):
        talk(server, cards, [], prompts=str(tmp_path / "prompts"))


@pytest.mark.parametrize(("code", "asked"), [("en", "in English"), ("ko", "in Korean"), ("pt", "in the language pt")])
def test_prompts_name_the_language_as_people_do(code, asked):
    assert f"{asked}," in Prompts(None).render("support/policy.jinja", language=code)


def test_a_training_card_that_is_a_test_card_is_refused(tmp_path):
    folder = write_cards(tmp_path / "cards", 2)
    copy = card("elsewhere", split="test", trigger="It happened -- number 1")
    (folder / "copy.json").write_text(json.dumps(copy))
    environment = open_environment("support", {"cards": str(folder)})
    with pytest.raises(UsageError, match=r"'card-01' is the test card 'elsewhere'"):
        environment.scenarios("train")
