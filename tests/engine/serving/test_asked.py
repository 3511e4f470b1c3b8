"""Requests as they come over the wire: what is taken, what is refused, and what the answer must look like."""

import json

import pytest
from tests.toys import CHATML, fast_tokenizer

from dialrl.engine.base import Generation
from dialrl.engine.serving.answers import chat_answer, completion_answer
from dialrl.engine.serving.asked import (
    Asked,
    BadRequestError,
    messages_of,
    refuse_unknown_ways,
    sampling_of,
    schema_of,
    stops_of,
    template_options,
    with_tools,
)
from dialrl.model.template import ChatTemplate
from dialrl.scenario.message import Message

TEMPLATE = ChatTemplate(fast_tokenizer(CHATML))
TOOL = {"type": "function", "function": {"name": "observe", "description": "Wait.", "parameters": {"type": "object"}}}


def test_content_may_be_a_text_or_a_list_of_parts():
    parts = [{"type": "text", "text": "Hello "}, {"type": "text", "text": "there."}]
    found = messages_of(
        {"messages": [{"role": "developer", "content": "Be kind."}, {"role": "user", "content": parts}]}
    )
    assert found == [Message("system", "Be kind."), Message("user", "Hello there.")]


@pytest.mark.parametrize(
    "messages", [None, [], "hello", [{"role": "narrator", "content": "x"}], [{"role": "user", "content": 3}]]
)
def test_what_is_no_chat_is_refused(messages):
    with pytest.raises(BadRequestError, match="messages"):
        messages_of({"messages": messages})


def test_lengths_and_settings_are_read_under_either_name():
    assert sampling_of({"max_completion_tokens": 7, "temperature": 0}).max_reply_tokens == 7
    assert sampling_of({}).temperature == 1.0
    with pytest.raises(BadRequestError, match="sampling settings"):
        sampling_of({"temperature": "warm"})


@pytest.mark.parametrize("body", [{"stream": True}, {"n": 2}])
def test_ways_that_are_not_served_are_refused(body):
    with pytest.raises(BadRequestError, match="not served here"):
        refuse_unknown_ways(body)


def test_the_schema_is_that_of_the_format_or_of_the_tools():
    schema = {"type": "object"}
    assert schema_of({}) is None
    assert schema_of({"response_format": {"type": "json_schema", "json_schema": {"schema": schema}}}) == schema
    found = schema_of({"tools": [TOOL]})
    assert found["anyOf"][0]["properties"] == {"name": {"const": "observe"}, "arguments": {"type": "object"}}
    with pytest.raises(BadRequestError, match="response_format"):
        schema_of({"response_format": {"type": "json_schema"}})
    with pytest.raises(BadRequestError, match="tools"):
        schema_of({"tools": ["observe"]})


def test_tools_are_told_in_the_last_message():
    told = with_tools([Message("system", "You direct."), Message("user", "Decide.")], [TOOL])
    assert told[0] == Message("system", "You direct.")
    assert told[1].content.startswith("Decide.\n\nAnswer with one JSON object")
    assert "- observe: Wait." in told[1].content


def test_options_of_the_request_stand_over_the_servers():
    own = {"chat_template_kwargs": {"enable_thinking": True}, "chat_template": "plain"}
    assert template_options(own, {"enable_thinking": False, "tone": 1}) == {
        "enable_thinking": True,
        "tone": 1,
        "chat_template": "plain",
    }
    assert stops_of({"stop": "\n"}) == ("\n",)


def reply(text, finish="stop"):
    end = [TEMPLATE.tokenizer.eos_token_id] if finish == "stop" else []
    ids = [*TEMPLATE.encode(text), *end]
    return Generation(ids, [-1.0] * len(ids), finish)


def asked(**changes):
    return Asked([1, 2, 3], sampling_of({}), 0, TEMPLATE, **changes)


def choice(text, finish="stop", **changes):
    return chat_answer("m", asked(**changes), reply(text, finish), TEMPLATE)["choices"][0]


def test_thoughts_stand_apart_from_what_is_said():
    found = choice("<think>\na plan\n</think>\n\nHow are you?")
    assert found["message"]["content"] == "How are you?"
    assert found["message"]["reasoning_content"] == "\na plan\n"
    assert found["finish_reason"] == "stop"


def test_a_call_that_is_spelled_out_becomes_a_tool_call_and_anything_else_stays_text():
    found = choice('{"name": "observe", "arguments": {"a": 1}}', tools=True)
    call = found["message"]["tool_calls"][0]["function"]
    assert (found["finish_reason"], call["name"], json.loads(call["arguments"])) == ("tool_calls", "observe", {"a": 1})
    assert choice("I would observe.", tools=True)["message"] == {"role": "assistant", "content": "I would observe."}


def test_an_answer_is_cut_at_the_first_stop_text():
    found = choice("Hello.\nUser: and", "length", stops=("\nUser", "and"))
    assert (found["message"]["content"], found["finish_reason"]) == ("Hello.", "stop")


def test_a_completion_gives_ids_and_log_probs_one_for_each_other_where_asked_for():
    body = {"logprobs": 0, "return_token_ids": True}
    drawn = reply("Hello")
    whole = completion_answer("m", asked(), drawn, TEMPLATE, body)
    found = whole["choices"][0]
    assert (found["token_ids"], found["text"]) == (drawn.reply_ids, "Hello")
    assert len(found["logprobs"]["token_logprobs"]) == len(drawn.reply_ids)
    assert whole["usage"] == {
        "prompt_tokens": 3,
        "completion_tokens": len(drawn.reply_ids),
        "total_tokens": 3 + len(drawn.reply_ids),
    }
    assert "token_ids" not in completion_answer("m", asked(), drawn, TEMPLATE, {})["choices"][0]
