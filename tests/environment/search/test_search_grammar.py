"""What a reply asks for, fault by fault."""

import json

import pytest

from dialrl.environment.search.grammar import Answer, Fault, Search, read_reply


def call(arguments, name="search"):
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


ONE = call({"query": "wool"})


def read(text):
    return read_reply(text, max_queries=3)


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        (ONE, Search(("wool",))),
        (f"I should look.\n{ONE}\n", Search(("wool",))),
        (call({"query": ["a ", "b", "c"]}), Search(("a", "b", "c"))),
        (call({"queries": ["a"]}), Search(("a",))),
        ("I know.\n<answer> New\nYork </answer>", Answer("New\nYork")),
        (f"<think>maybe <answer>x</answer> or {ONE}</think><answer>y</answer>", Answer("y")),
    ],
)
def test_a_call_or_an_answer_is_read(text, asked):
    assert read(text) == asked


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("", "nothing"),
        ("wool", "nothing"),
        (ONE + ONE, "several"),
        (ONE + "<answer>x</answer>", "several"),
        ("<answer>x</answer><answer>y</answer>", "several"),
        ("<tool_call>{'name': 'search'}</tool_call>", "json"),
        ("<tool_call>" + "[" * 100_000 + "</tool_call>", "json"),
        ("<tool_call>[1]</tool_call>", "call"),
        (call({"query": "x"}, name="browse"), "call"),
        (call("x"), "call"),
        (call({}), "query"),
        (call({"query": 7}), "query"),
        (call({"query": ["a", 7]}), "query"),
        (call({"query": " "}), "empty_query"),
        (call({"query": []}), "empty_query"),
        (call({"query": ["a", ""]}), "empty_query"),
        (call({"query": ["a", "b", "c", "d"]}), "queries"),
        ("<answer>  </answer>", "empty_answer"),
        ("<answer>cut by le", "tags"),
        (ONE + "<tool_call>", "tags"),
        ("<think>never closed <answer>x</answer>", "nothing"),
    ],
)
def test_a_fault_has_a_kind_and_a_sentence(text, kind):
    fault = read(text)
    assert isinstance(fault, Fault)
    assert (fault.kind, fault.message[-1]) == (kind, ".")
