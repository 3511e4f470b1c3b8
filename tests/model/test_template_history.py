"""History as the template renders it: segments, kept ids, and the promise that append never breaks."""

import re
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.toys import CHATML, LLAMA3, PLAIN, THINKING, ToyTokenizer, fast_tokenizer

from dialrl.model.context import DialogueContext
from dialrl.model.template import ChatTemplate
from dialrl.scenario.message import Message

THINK = [ord(character) + 100 for character in "<think>a</think>"]


def stripping(messages: Sequence[Mapping[str, str]], generation_prompt: bool) -> str:
    """A toy template that drops the thoughts of all replies but the last message."""
    rendered = ""
    for number, message in enumerate(messages):
        text = message["content"]
        if message["role"] == "assistant" and number < len(messages) - 1:
            text = re.sub("<think>.*?</think>", "", text)
        rendered += text + "<eot>\n"
    return rendered


def five_turns(history: str) -> tuple[list[int], DialogueContext]:
    """Five turns; only the third reply thinks, so that only the prompt of turn 4 is no extension."""
    context = DialogueContext(ChatTemplate(ToyTokenizer(stripping)), history)
    segments = [context.open([Message("user", "he")]).segment]
    for turn in range(1, 5):
        thoughts = THINK if turn == 3 else []
        context.add_reply([*thoughts, 1, 2, 9], context.template.decode([*thoughts, 1, 2]), "stop")
        segments.append(context.next([Message("user", "he")]).segment)
    return segments, context


def test_one_break_before_turn_four_gives_two_segments():
    segments, context = five_turns("template")
    assert segments == [0, 0, 0, 1, 1]
    assert context.reencoded_replies == 0


def test_append_never_breaks():
    segments, _ = five_turns("append")
    assert segments == [0, 0, 0, 0, 0]


def test_the_new_segment_holds_the_sampled_ids_with_the_thoughts_cut_by_position():
    _, context = five_turns("template")
    turn = [1, 9, 8, 1, 2, 9, 8]  # user "he", then the sampled [1, 2] for "hello": never the [3] of encoding it
    assert context.context_ids == turn * 4 + [1, 9, 8]


def test_a_reply_that_cannot_be_cut_between_two_ids_is_reencoded_and_counted():
    def without_he(messages: Sequence[Mapping[str, str]], generation_prompt: bool) -> str:
        texts = [m["content"].removeprefix("he") if m["role"] == "assistant" else m["content"] for m in messages]
        return "".join(text + "<eot>\n" for text in texts)

    context = DialogueContext(ChatTemplate(ToyTokenizer(without_he)), "template")
    context.open([Message("user", "he")])
    context.add_reply([3, 9], "hello", "stop")  # the single id 3 cannot be cut after "he"
    prompt = context.next([Message("user", "he")])
    assert prompt.segment == 1
    assert prompt.new_ids == [1, 9, 8, 2, 9, 8, 1, 9, 8]
    assert context.reencoded_replies == 1


def test_a_think_block_that_the_template_keeps_starts_no_segment():
    template = ChatTemplate(fast_tokenizer(CHATML))
    context = DialogueContext(template, "template")
    end = template.tokenizer.convert_tokens_to_ids("<|im_end|>")
    context.open([Message("user", "hello")])
    reply = template.encode("<think>\na plan\n</think>\n\nHow are you?")
    context.add_reply([*reply, end], template.decode(reply), "stop")
    assert context.next([Message("user", "hello")]).segment == 0


def test_a_thinking_template_starts_a_segment_after_every_thought():
    template = ChatTemplate(fast_tokenizer(THINKING))
    context = DialogueContext(template, "template")
    end = template.tokenizer.convert_tokens_to_ids("<|im_end|>")
    context.open([Message("user", "hello")])
    spoken = template.encode("How ") + template.encode("are you?")  # not the ids that encoding the words would give
    assert spoken != template.encode("How are you?")
    thought = template.encode("<think>\na plan\n</think>\n\n")
    context.add_reply([*thought, *spoken, end], template.decode([*thought, *spoken]), "stop")
    prompt = context.next([Message("user", "hello")])
    assert prompt.segment == 1
    header = template.prompt_ids([Message("user", "hello")])
    assert prompt.new_ids == [*header, *spoken, end, *template.encode("\n"), *header]
    assert context.reencoded_replies == 0


def test_a_stop_token_that_the_template_does_not_write_starts_a_segment():
    template = ChatTemplate(fast_tokenizer(CHATML))
    context = DialogueContext(template, "template")
    context.open([Message("user", "hello")])
    context.add_reply([40, template.tokenizer.convert_tokens_to_ids("<|endoftext|>")], template.decode([40]), "stop")
    assert context.next([Message("user", "hello")]).segment == 1


def test_an_empty_think_block_in_the_header_starts_a_segment_at_every_turn_in_template_mode_only():
    template = ChatTemplate(fast_tokenizer(THINKING), {"enable_thinking": False})
    end = template.tokenizer.convert_tokens_to_ids("<|im_end|>")
    segments = {}
    for history in ("append", "template"):
        context = DialogueContext(template, history)
        numbers = [context.open([Message("user", "hello")]).segment]
        for _ in range(3):
            context.add_reply([40, end], template.decode([40]), "stop")
            numbers.append(context.next([Message("user", "hello")]).segment)
        segments[history] = numbers
    assert segments == {"append": [0, 0, 0, 0], "template": [0, 1, 2, 3]}


TEMPLATES = {
    "chatml": ChatTemplate(fast_tokenizer(CHATML)),
    "llama3": ChatTemplate(fast_tokenizer(LLAMA3, "<|eot_id|>")),
    "thinking": ChatTemplate(fast_tokenizer(THINKING)),
    "no-thinking": ChatTemplate(fast_tokenizer(THINKING), {"enable_thinking": False}),
    "plain": ChatTemplate(fast_tokenizer(PLAIN)),
}
WORDS = st.text(alphabet="abehlo \n.é☃", min_size=0, max_size=12)
REPLIES = st.lists(st.integers(min_value=9, max_value=329), max_size=8)


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(sorted(TEMPLATES)),
    history=st.sampled_from(["append", "template"]),
    turns=st.lists(st.tuples(WORDS, REPLIES, st.booleans()), min_size=1, max_size=4),
)
def test_prompts_and_replies_in_turn_are_the_context_of_each_segment(name, history, turns):
    template = TEMPLATES[name]
    stop = template.tokenizer.eos_token_id
    context = DialogueContext(template, history)
    segments: dict[int, list[int]] = {}
    for number, (words, sampled, stopped) in enumerate(turns):
        messages = [Message("user", words)]
        prompt = context.open(messages) if number == 0 else context.next(messages)
        segments.setdefault(prompt.segment, []).extend(prompt.new_ids)
        assert segments[prompt.segment] == context.context_ids
        reply_ids = [*sampled, stop] if stopped else sampled
        reason = "stop" if stopped else "length"
        context.add_reply(reply_ids, template.decode_reply(reply_ids, reason).text, reason)
        segments[prompt.segment].extend(reply_ids)
    assert segments[context.segment] == context.context_ids
    assert sorted(segments) == list(range(context.segment + 1))
    if history == "append":
        assert context.segment == 0


@settings(max_examples=60, deadline=None)
@given(name=st.sampled_from(sorted(TEMPLATES)), turns=st.lists(st.tuples(WORDS, WORDS), min_size=2, max_size=4))
def test_in_template_mode_every_prompt_spells_what_the_template_renders(name, turns):
    template = TEMPLATES[name]
    context = DialogueContext(template, "template")
    messages: list[Message] = []
    for number, (words, reply) in enumerate(turns):
        messages.append(Message("user", words))
        prompt = context.open(messages[-1:]) if number == 0 else context.next(messages[-1:])
        assert prompt.new_ids
        assert template.decode(context.context_ids) == template.render(messages, generation_prompt=True)
        sampled = template.encode(reply)
        context.add_reply([*sampled, template.tokenizer.eos_token_id], reply, "stop")
        messages.append(Message("assistant", reply))


@pytest.mark.parametrize("turn", [1, 2, 3])
def test_the_first_trained_position_is_predicted_by_the_logits_before_it(turn):
    context = DialogueContext(ChatTemplate(ToyTokenizer(stripping)))
    mask = [0] * len(context.open([Message("user", "he")]).new_ids)
    for _ in range(turn):
        context.add_reply([1, 2, 9], "hello", "stop")
        mask += [1, 1, 1] + [0] * len(context.next([Message("user", "he")]).new_ids)
    assert len(mask) == len(context.context_ids)
    trained = [token for token, sampled in zip(context.context_ids, mask, strict=True) if sampled]
    assert trained == [1, 2, 9] * turn
    assert mask.index(1) - 1 == 2
