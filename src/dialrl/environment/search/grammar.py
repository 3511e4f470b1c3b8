"""What a policy's reply asks for: one search, an answer, or a fault that the policy is told of.

A reply is a thought, then either one tool call (JSON between tags, keys ``name`` and ``arguments``) or an answer
between tags. Only the reply itself is ever read, never what a tool said. Tags inside a think block do not count.
Source: docs/search.md. Pure text.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

TOOL = "search"
_THOUGHT = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)
_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
_TAGS = ("<tool_call>", "</tool_call>", "<answer>", "</answer>")


@dataclass(frozen=True)
class Search:
    queries: tuple[str, ...]


@dataclass(frozen=True)
class Answer:
    text: str


@dataclass(frozen=True)
class Fault:
    """``kind``: a word for counting (flag ``format_KIND``). ``message``: what the policy is told."""

    kind: str
    message: str


def read_reply(text: str, *, max_queries: int) -> Search | Answer | Fault:
    """What the reply ``text`` asks for.

    Example: '<tool_call>{"name": "search", "arguments": {"query": "wool"}}</tool_call>' -> Search(("wool",)).
    """
    spoken = _THOUGHT.sub("", text)
    calls, answers = _CALL.findall(spoken), _ANSWER.findall(spoken)
    if len(calls) + len(answers) > 1:
        return Fault("several", "Give one tool call or one answer, not several in one turn.")
    rest = _ANSWER.sub("", _CALL.sub("", spoken))
    if any(tag in rest for tag in _TAGS):
        return Fault("tags", "A tag was left open. Close every <tool_call> and <answer>.")
    if answers:
        answer = answers[0].strip()
        return Answer(answer) if answer else Fault("empty_answer", "The answer is empty.")
    if not calls:
        return Fault("nothing", "Call the tool between <tool_call> tags, or answer between <answer> tags.")
    return _search(calls[0], max_queries)


def _search(text: str, max_queries: int) -> Search | Fault:
    try:
        call = json.loads(text)
    except (ValueError, RecursionError):
        return Fault("json", 'The tool call is no valid JSON. Write {"name": "search", "arguments": {"query": "..."}}.')
    if not isinstance(call, dict) or call.get("name") != TOOL or not isinstance(call.get("arguments"), dict):
        return Fault("call", f'The tool call needs "name": "{TOOL}" and "arguments" with a "query".')
    queries = _queries(call["arguments"])
    if queries is None:
        return Fault("query", 'The argument "query" is a text, or a list of texts.')
    if not queries or not all(query.strip() for query in queries):
        return Fault("empty_query", "A query is empty. Say what to search for.")
    if len(queries) > max_queries:
        return Fault("queries", f"A call has at most {max_queries} queries; got {len(queries)}.")
    return Search(tuple(query.strip() for query in queries))


def _queries(arguments: dict[str, Any]) -> Sequence[str] | None:
    value = arguments.get("query", arguments.get("queries"))
    if isinstance(value, str):
        return [value]
    return value if isinstance(value, list) and all(isinstance(query, str) for query in value) else None
