"""Delta ids: what follows a reply is cut out of a whole rendering, and only what was sampled is trained."""

import pytest
from tests.toys import CHATML, LLAMA3, PLAIN, ToyTokenizer, fast_tokenizer, newline_after_eot

from dialrl.errors import RunError, UsageError
from dialrl.model.context import DialogueContext
from dialrl.model.template import ChatTemplate
from dialrl.scenario.message import Message


def user(text: str) -> Message:
    return Message("user", text)


def toy_context(history: str = "append") -> DialogueContext:
    return DialogueContext(ChatTemplate(ToyTokenizer(newline_after_eot)), history)


def test_sampled_ids_are_kept_although_their_text_encodes_otherwise():
    context = toy_context()
    assert context.template.encode("hello") == [3]
    context.open([user("he")])
    context.add_reply([1, 2, 9], "hello", "stop")
    context.next([user("he")])
    assert context.context_ids == [1, 9, 8, 1, 2, 9, 8, 1, 9, 8]


def test_the_separator_the_sampler_never_saw_is_added_once_a_turn():
    context = toy_context()
    prompts = [context.open([user("he")]).new_ids]
    for turn in range(3):
        context.add_reply([1, 2, 9], "hello", "stop")
        if turn < 2:
            prompts.append(context.next([user("llo")]).new_ids)
    assert prompts == [[1, 9, 8], [8, 2, 9, 8], [8, 2, 9, 8]]
    after_replies = [prompt[0] for prompt in prompts[1:]]
    assert after_replies == [8, 8]


def test_what_the_template_adds_to_a_reply_has_mask_zero():
    context = toy_context()
    first = context.open([user("he")]).new_ids[1:]  # two prompt ids, as in field case 4
    context.add_reply([1, 2, 9], "hello", "stop")
    second = context.next([user("he")]).new_ids[:2]
    mask = [0] * len(first) + [1, 1, 1] + [0] * len(second) + [1, 1]
    assert mask == [0, 0, 1, 1, 1, 0, 0, 1, 1]
    assert sum(mask) == 5
    assert mask.index(1) - 1 == 1


def test_a_space_that_the_template_writes_before_the_end_of_turn_is_not_added_after_it():
    def spaced(messages, _):
        return "".join(message["content"] + " <eot>\n" for message in messages)

    context = DialogueContext(ChatTemplate(ToyTokenizer(spaced)))
    context.open([user("he")])
    context.add_reply([1, 2, 9], "hello", "stop")
    space = 100 + ord(" ")
    assert context.next([user("he")]).new_ids == [8, 1, space, 9, 8]
    context.add_reply([1, 2], "hello", "length")
    assert context.next([user("he")]).new_ids == [space, 9, 8, 1, space, 9, 8]


def test_a_reply_cut_by_length_gets_the_end_of_turn_untrained():
    context = toy_context()
    context.open([user("he")])
    context.add_reply([1, 2], "hello", "length")
    assert context.next([user("he")]).new_ids == [9, 8, 1, 9, 8]


def test_a_reply_that_stops_at_another_token_keeps_it_and_gets_the_end_of_turn():
    tokenizer = fast_tokenizer(CHATML)
    context = DialogueContext(ChatTemplate(tokenizer))
    context.open([user("hello")])
    end_of_text, end_of_turn = tokenizer.convert_tokens_to_ids(["<|endoftext|>", "<|im_end|>"])
    context.add_reply([40, end_of_text], tokenizer.decode([40]), "stop")
    assert context.next([user("hello")]).new_ids[0] == end_of_turn


def test_an_empty_reply_cut_by_length_still_closes_its_turn():
    context = toy_context()
    context.open([user("he")])
    context.add_reply([], "", "length")
    assert context.next([user("he")]).new_ids == [9, 8, 1, 9, 8]


def test_final_ids_hold_what_followed_the_last_reply_without_a_header():
    template = ChatTemplate(fast_tokenizer(CHATML))
    context = DialogueContext(template)
    context.open([user("hello")])
    end = template.tokenizer.convert_tokens_to_ids("<|im_end|>")
    context.add_reply([40, end], template.decode([40]), "stop")
    assert template.decode(context.final([user("bye")])) == "\n<|im_start|>user\nbye<|im_end|>\n"


def test_final_ids_are_empty_when_nothing_followed():
    context = toy_context()
    context.open([user("he")])
    context.add_reply([1, 9], "he", "stop")
    assert context.final([]) == []


@pytest.mark.parametrize(("chat_template", "eos"), [(CHATML, "<|im_end|>"), (LLAMA3, "<|eot_id|>")])
def test_with_a_reply_that_encodes_to_its_ids_the_context_is_the_whole_rendering(chat_template, eos):
    template = ChatTemplate(fast_tokenizer(chat_template, eos))
    context = DialogueContext(template)
    stop = template.tokenizer.convert_tokens_to_ids(eos)
    messages = [Message("system", "You listen."), user("I am worried.")]
    context.open(messages)
    for reply in ("What happened?", "That sounds hard."):
        context.add_reply([*template.encode(reply), stop], reply, "stop")
        context.next([user("My exam.")])
        messages += [Message("assistant", reply), user("My exam.")]
        assert context.context_ids == template.prompt_ids(messages)


def test_without_special_tokens_the_delta_is_still_the_end_of_the_whole_rendering():
    template = ChatTemplate(fast_tokenizer(PLAIN))
    messages = [user("hello"), Message("assistant", "there"), user("how are you")]
    suffix = template.suffix_ids(messages, 1, generation_prompt=True)
    assert template.decode(suffix) == "\nuser: how are you\nassistant: "
    assert template.prompt_ids(messages)[-len(suffix) :] == suffix


def test_a_placeholder_in_the_users_words_does_not_move_the_cut():
    template = ChatTemplate(fast_tokenizer(CHATML))
    messages = [user("hello"), Message("assistant", "x"), user("placeholder placeholder")]
    expected = "<|im_end|>\n<|im_start|>user\nplaceholder placeholder<|im_end|>\n<|im_start|>assistant\n"
    assert template.suffix_text(messages, 1, generation_prompt=True) == expected


def test_two_turns_rolled_out_from_the_same_messages_leave_them_unchanged():
    messages = [Message("system", "You listen."), user("hello")]
    prompts = [toy_context().open(messages).new_ids for _ in range(2)]
    assert prompts[0] == prompts[1]
    assert messages == [Message("system", "You listen."), user("hello")]


def test_special_tokens_spelled_out_in_a_message_are_found():
    template = ChatTemplate(fast_tokenizer(CHATML))
    assert template.special_texts_in("I type <|im_end|> here") == ["<|im_end|>"]
    assert template.special_texts_in("I type nothing") == []


def test_a_straddling_token_is_told_and_its_pieces_are_encoded_apart():
    template = ChatTemplate(ToyTokenizer(newline_after_eot))
    assert template.cut("hello<eot>", [5]).pieces == [[3], [9]]
    straddled = template.cut("hello<eot>", [2])
    assert (straddled.pieces, straddled.exact) == ([[1], [2, 9]], False)


def test_calls_out_of_turn_are_refused():
    context = toy_context()
    with pytest.raises(RunError, match="add_reply"):
        context.next([])
    context.open([user("he")])
    with pytest.raises(RunError, match="twice"):
        context.open([user("he")])
    with pytest.raises(RunError, match="no stop token"):
        context.add_reply([], "", "stop")


def test_a_tokenizer_without_chat_template_is_refused():
    with pytest.raises(UsageError, match="no chat template"):
        ChatTemplate(fast_tokenizer(CHATML).__class__(tokenizer_object=fast_tokenizer(CHATML).backend_tokenizer))


def test_a_template_that_refuses_a_role_is_named_with_the_roles():
    refusing = "{{ raise_exception('no system role') }}"
    template = ChatTemplate(fast_tokenizer(refusing))
    with pytest.raises(UsageError, match=r"\['system', 'user'\].*no system role"):
        template.prompt_ids([Message("system", "s"), user("u")])
