"""Options of a rendering: variables of the template, and templates for a model that has none."""

import pytest
from tests.toys import CHATML, THINKING, fast_tokenizer

from dialrl.errors import MissingInputError, UsageError
from dialrl.model.chat_templates import checked_options, shipped, template_digest
from dialrl.model.context import DialogueContext
from dialrl.model.stopping import stop_ids
from dialrl.model.template import ChatTemplate
from dialrl.scenario.message import Message

CONVERSATION = [Message("system", "Be kind."), Message("user", "I am\nsad."), Message("assistant", " Why?")]


def without_template():
    tokenizer = fast_tokenizer(CHATML)
    tokenizer.chat_template = None
    return tokenizer


def test_a_tokenizer_without_a_template_is_refused_with_what_to_do():
    with pytest.raises(UsageError, match=r"template_options\.chat_template=plain"):
        ChatTemplate(without_template())


def test_the_shipped_transcript_is_one_line_a_turn():
    template = ChatTemplate(without_template(), {"chat_template": "plain"})
    text = template.render(CONVERSATION, generation_prompt=True)
    assert text == "<|begin_of_text|>Be kind.\n\nUser: I am sad.\nAssistant: Why?\nAssistant:"


def test_names_in_the_transcript_are_variables_of_the_template():
    options = {"chat_template": "plain", "user_name": "Mina", "assistant_name": "Friend"}
    text = ChatTemplate(without_template(), options).render(CONVERSATION[1:], generation_prompt=True)
    assert text == "<|begin_of_text|>Mina: I am sad.\nFriend: Why?\nFriend:"


def test_a_sampled_line_break_ends_a_reply_of_the_transcript_and_is_trained():
    template = ChatTemplate(without_template(), {"chat_template": "plain"})
    line_break = template.encode("\n")
    assert line_break[0] in stop_ids(template)
    context = DialogueContext(template, "append")
    context.open([Message("user", "Hello")])
    reply = [*template.encode(" Hi."), *line_break]
    context.add_reply(reply, " Hi.", "stop")
    delta = context.next([Message("user", "Bye")])
    assert template.decode(delta.new_ids) == "User: Bye\nAssistant:"  # the line break stands once, as sampled


def test_the_shipped_chatml_is_the_template_of_that_name():
    ours, theirs = ChatTemplate(without_template(), {"chat_template": "chatml"}), ChatTemplate(fast_tokenizer(CHATML))
    assert ours.render(CONVERSATION, generation_prompt=True) == theirs.render(CONVERSATION, generation_prompt=True)


def test_a_template_is_read_from_a_file_or_taken_as_text(tmp_path):
    (tmp_path / "own.jinja").write_text("{{ messages[0].content }}!")
    assert (
        checked_options({"chat_template": str(tmp_path / "own.jinja")})["chat_template"] == "{{ messages[0].content }}!"
    )
    assert checked_options({"chat_template": "{{ 1 }}"}) == {"chat_template": "{{ 1 }}"}
    assert checked_options({"chat_template": None, "enable_thinking": False}) == {"enable_thinking": False}


def test_wrong_options_are_refused_with_the_nearest_name():
    with pytest.raises(UsageError, match=r"Did you mean 'plain'\?"):
        checked_options({"chat_template": "plane"})
    with pytest.raises(MissingInputError, match=r"no\.jinja"):
        checked_options({"chat_template": "no.jinja"})
    with pytest.raises(UsageError, match="tokenize is set by every rendering"):
        checked_options({"tokenize": True})
    assert shipped() == ["chatml", "plain"]


def test_the_digest_is_that_of_the_text_that_renders():
    own = ChatTemplate(fast_tokenizer(THINKING), {"enable_thinking": False})
    assert own.digest == template_digest(THINKING)
    assert ChatTemplate(fast_tokenizer(THINKING), {"chat_template": "plain"}).digest != own.digest
    assert template_digest({"default": "x"}) is None
