"""Text of a sampled reply: unstripped, flagged where bytes are broken, thoughts told from words."""

import pytest
from tests.toys import CHATML, fast_tokenizer

from dialrl.model.reply import split_thinking
from dialrl.model.template import ChatTemplate

TEMPLATE = ChatTemplate(fast_tokenizer(CHATML))
OPENING = ChatTemplate(fast_tokenizer(CHATML.replace("assistant\n", "assistant\n<think>\n")))
END = TEMPLATE.tokenizer.convert_tokens_to_ids("<|im_end|>")


def test_the_stop_token_is_no_part_of_the_text_and_spaces_are():
    ids = TEMPLATE.encode("  hello \n")
    assert TEMPLATE.decode_reply([*ids, END], "stop").text == "  hello \n"


def test_a_tokenizer_that_cleans_up_spaces_is_not_asked_to():
    tidy = fast_tokenizer(CHATML)
    tidy.clean_up_tokenization_spaces = True
    tidy.clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output = True
    ids = tidy.encode("hello .", add_special_tokens=False)
    assert tidy.decode(ids) == "hello."
    assert ChatTemplate(tidy).decode_reply(ids, "length").text == "hello ."


def test_a_cut_reply_keeps_its_last_id_in_the_text():
    assert TEMPLATE.decode_reply(TEMPLATE.encode("hello"), "length").text == "hello"


def test_broken_bytes_become_replacement_characters_and_are_flagged():
    snowman = TEMPLATE.encode("☃")
    decoded = TEMPLATE.decode_reply([*snowman[:-1], END], "stop")
    assert "\ufffd" in decoded.text
    assert decoded.flags == ("broken_bytes",)
    assert TEMPLATE.decode_reply([*snowman, END], "stop").flags == ()


def test_an_empty_reply_is_an_empty_text():
    decoded = TEMPLATE.decode_reply([END], "stop")
    assert (decoded.text, decoded.reply, decoded.thinking) == ("", "", None)


@pytest.mark.parametrize(
    ("text", "opened", "thinking", "reply"),
    [
        ("<think>\nplan\n</think>\n\nHello", False, "\nplan\n", "\n\nHello"),
        ("Hello", False, None, "Hello"),
        ("<think>pl", False, "pl", ""),
        ("plan\n</think>\n\nHello", True, "plan\n", "\n\nHello"),
        ("pl", True, "pl", ""),
        ("I <think> so", False, None, "I <think> so"),
        ("<think></think>Hi", False, "", "Hi"),
    ],
)
def test_thoughts_and_words_are_told_apart(text, opened, thinking, reply):
    assert split_thinking(text, opened=opened) == (thinking, reply)


def test_a_header_that_opens_the_think_block_is_noticed():
    assert OPENING.opens_thinking
    assert not TEMPLATE.opens_thinking
    decoded = OPENING.decode_reply([*OPENING.encode("a plan</think>Hello"), END], "stop")
    assert (decoded.thinking, decoded.reply) == ("a plan", "Hello")
