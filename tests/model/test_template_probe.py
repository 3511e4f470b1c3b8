"""The start-up probe: on token ids, before anything is sampled, and its outcome is printed."""

import json
from types import SimpleNamespace

import pytest
from tests.toys import CHATML, LLAMA3, PLAIN, THINKING, ToyTokenizer, fast_tokenizer, newline_after_eot

from dialrl.errors import InputError
from dialrl.model.probe import probe_template
from dialrl.model.stopping import stop_ids
from dialrl.model.template import ChatTemplate

REWRITING = CHATML.replace("message.content +", "message.content.replace('?', '.') +")


@pytest.mark.parametrize(("chat_template", "eos"), [(CHATML, "<|im_end|>"), (LLAMA3, "<|eot_id|>")])
def test_a_stable_template_is_found_stable_and_appends(chat_template, eos):
    probe = probe_template(ChatTemplate(fast_tokenizer(chat_template, eos)))
    assert probe.prefix_stable
    assert probe.default_history == "append"
    assert probe.costs["template"] == probe.costs["append"]


def test_an_empty_think_block_alone_is_no_reason_for_segments():
    probe = probe_template(ChatTemplate(fast_tokenizer(THINKING), {"enable_thinking": False}))
    assert not probe.prefix_stable
    assert probe.rewrites_only_empty_thinking
    assert probe.default_history == "append"
    assert (probe.costs["append"].segments, probe.costs["template"].segments) == (1, 15)
    assert probe.costs["template"].tokens / probe.costs["append"].tokens == pytest.approx(8, abs=0.7)


def test_stripped_thoughts_make_template_the_default():
    probe = probe_template(ChatTemplate(fast_tokenizer(THINKING)), turns=5)
    assert probe.prefix_stable
    assert probe.strips_thinking
    assert probe.default_history == "template"
    assert probe.costs["template"].segments == 5


def test_a_template_that_rewrites_replies_makes_template_the_default():
    probe = probe_template(ChatTemplate(fast_tokenizer(REWRITING)))
    assert not probe.text_stable
    assert probe.default_history == "template"
    assert "rewrites earlier replies" in "\n".join(probe.summary())


def test_tokens_that_merge_across_a_header_are_told_from_a_rewritten_text():
    probe = probe_template(ChatTemplate(fast_tokenizer(PLAIN)))
    assert (probe.prefix_stable, probe.text_stable) == (False, True)
    assert probe.default_history == "append"


def test_the_separator_and_the_end_of_turn_are_those_of_the_toy_vocabulary():
    probe = probe_template(ChatTemplate(ToyTokenizer(newline_after_eot)))
    assert (probe.end_of_turn_id, probe.separator_ids, probe.stop_ids) == (9, (8,), (9,))


def test_the_summary_names_the_mode_and_what_the_other_would_cost():
    probe = probe_template(ChatTemplate(fast_tokenizer(THINKING), {"enable_thinking": False}))
    lines = probe.summary()
    assert lines[0] == "history: append (by probe), 1 segment(s) in 15 turns"
    assert lines[1].startswith("history: template would make 15 segment(s), 7.")
    assert probe.summary("template")[0].startswith("history: template, 15 segment(s)")


def test_the_probe_is_json_for_the_lineage():
    details = probe_template(ChatTemplate(fast_tokenizer(CHATML))).to_details()
    assert json.loads(json.dumps(details)) == details


@pytest.mark.parametrize(("eos", "expected"), [(9, [9]), ([9, 7], [7, 9]), (None, [9])])
def test_eos_may_be_an_int_a_list_or_missing(eos, expected):
    model = SimpleNamespace(generation_config=SimpleNamespace(eos_token_id=eos), config=SimpleNamespace())
    assert stop_ids(ChatTemplate(ToyTokenizer(newline_after_eot)), model) == expected


def test_the_end_of_turn_stops_a_reply_although_eos_is_another_token():
    tokenizer = fast_tokenizer(CHATML, "<|endoftext|>")
    expected = sorted(tokenizer.convert_tokens_to_ids(["<|endoftext|>", "<|im_end|>"]))
    assert stop_ids(ChatTemplate(tokenizer)) == expected


def test_a_policy_without_any_stop_token_is_refused():
    template = ChatTemplate(ToyTokenizer(lambda messages, _: "".join(m["content"] + " - " for m in messages)))
    template.tokenizer.eos_token_id = None
    with pytest.raises(InputError, match="no end-of-turn token"):
        stop_ids(template)


def test_in_a_transcript_without_control_tokens_a_line_break_ends_a_reply():
    template = ChatTemplate(ToyTokenizer(lambda messages, _: "".join(m["content"] + "\n" for m in messages)))
    probe = probe_template(template)
    assert (probe.end_of_turn_id, probe.separator_ids, probe.stop_ids) == (8, (), (8, 9))


def test_a_line_break_after_a_control_token_ends_nothing():
    assert stop_ids(ChatTemplate(ToyTokenizer(newline_after_eot))) == [9]
