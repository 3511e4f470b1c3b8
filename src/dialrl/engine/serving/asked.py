"""One request as the model takes it: ids, sampling, limits, and what the answer must look like. Reads untrusted JSON.

Not here: drawing (``model``), the wire (``server``), answers as JSON (``answers``).
"""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dialrl.engine.base import SamplingSettings
from dialrl.errors import UsageError
from dialrl.model.template import ChatTemplate
from dialrl.scenario.message import Message

Json = Mapping[str, Any]
_TEXT_TOKENS = 256
_BEGINNING_TOKENS = 8
_SEED_BITS = 63
_TOOL_RULES = 'Answer with one JSON object, {"name": ..., "arguments": {...}}, and nothing else. Its name is one of:'


class BadRequestError(ValueError):
    """A request that cannot be answered; the message is for who sent it."""


@dataclass(frozen=True)
class Asked:
    """``sampling.max_reply_tokens`` bounds the answer. ``schema``: what it must hold to; ``tools``: it calls one.

    ``template`` is None for a completion. ``stops``: texts at which the answer is cut.
    """

    prompt_ids: list[int]
    sampling: SamplingSettings
    seed: int
    template: ChatTemplate | None = None
    schema: Json | None = None
    tools: bool = False
    stops: tuple[str, ...] = ()

    @property
    def beginning(self) -> tuple[int, ...]:
        """The first ids of the prompt, which tell the prompts of one role from those of another."""
        return tuple(self.prompt_ids[:_BEGINNING_TOKENS])


def sampling_of(body: Json) -> SamplingSettings:
    """Sampling settings of a request. Raises BadRequestError for values out of bounds."""
    tokens = body.get("max_completion_tokens") or body.get("max_tokens") or _TEXT_TOKENS
    try:
        return SamplingSettings(
            temperature=float(body.get("temperature", 1.0)),
            top_p=float(body.get("top_p", 1.0)),
            top_k=max(0, int(body.get("top_k", 0))),
            min_p=float(body.get("min_p", 0.0)),
            max_reply_tokens=int(tokens),
        )
    except (TypeError, ValueError) as error:
        raise BadRequestError(f"sampling settings: {error}") from None


def refuse_unknown_ways(body: Json) -> None:
    """Raise BadRequestError for what this server does not do."""
    if body.get("stream"):
        raise BadRequestError("stream is not served here; ask for the whole answer")
    if int(body.get("n") or 1) != 1:
        raise BadRequestError("n is not served here; send the request as often as needed, with other seeds")


def seed_of(body: Json) -> int:
    given = body.get("seed")
    return random.getrandbits(_SEED_BITS) if given is None else int(given) & (2**_SEED_BITS - 1)


def stops_of(body: Json) -> tuple[str, ...]:
    given = body.get("stop") or ()
    return (given,) if isinstance(given, str) else tuple(str(stop) for stop in given)


def messages_of(body: Json) -> list[Message]:
    """The chat so far; content may be a text or a list of text parts. Raises BadRequestError."""
    given = body.get("messages")
    if not isinstance(given, Sequence) or isinstance(given, str) or not given:
        raise BadRequestError("messages: expected a list of {role, content}")
    return [_message(entry) for entry in given]


def _message(entry: Any) -> Message:
    if not isinstance(entry, Mapping) or entry.get("role") not in ("system", "user", "assistant", "tool", "developer"):
        raise BadRequestError(f"messages: {entry!r:.80} is no message with a known role")
    role = "system" if entry["role"] == "developer" else str(entry["role"])
    content = entry.get("content") or ""
    if isinstance(content, Sequence) and not isinstance(content, str):
        content = "".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))
    if not isinstance(content, str):
        raise BadRequestError("messages: content is neither a text nor a list of text parts")
    return Message(role, content)  # type: ignore[arg-type]  # checked above


def schema_of(body: Json) -> Json | None:
    """The JSON schema that the answer must hold to: of its format, or of the tools it may call."""
    tools = body.get("tools")
    if tools:
        return {"anyOf": [_call_schema(tool) for tool in tools]}
    wanted = body.get("response_format") or {}
    if wanted.get("type") == "json_object":
        return {"type": "object"}
    if wanted.get("type") == "json_schema":
        try:
            schema: Json = wanted["json_schema"]["schema"]
        except (KeyError, TypeError):
            raise BadRequestError("response_format: expected json_schema.schema") from None
        return schema
    return None


def _call_schema(tool: Any) -> Json:
    try:
        function = tool["function"]
        parameters = function.get("parameters") or {"type": "object", "properties": {}}
        name = str(function["name"])
    except (KeyError, TypeError, AttributeError):
        raise BadRequestError("tools: expected {type: function, function: {name, parameters}}") from None
    return {
        "type": "object",
        "properties": {"name": {"const": name}, "arguments": parameters},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


def with_tools(messages: Sequence[Message], tools: Sequence[Json]) -> list[Message]:
    """The messages with the tools described in the last one: any template shows that, whatever it knows of tools."""
    lines = [
        f"- {tool['function']['name']}: {tool['function'].get('description', '')} arguments:"
        f" {json.dumps(tool['function'].get('parameters', {}).get('properties', {}), ensure_ascii=False)}"
        for tool in tools
    ]
    told = "\n".join([_TOOL_RULES, *lines])
    last = messages[-1]
    return [*messages[:-1], Message(last.role, f"{last.content}\n\n{told}", last.name)]


def template_options(body: Json, default: Json) -> Json:
    """Options of the chat template: the server's own, those of the request on top. Raises BadRequestError."""
    own = body.get("chat_template_kwargs") or {}
    if not isinstance(own, Mapping):
        raise BadRequestError("chat_template_kwargs: expected an object")
    given = {"chat_template": body["chat_template"]} if body.get("chat_template") else {}
    return {**default, **own, **given}


def rendered(template: ChatTemplate, messages: Sequence[Message]) -> list[int]:
    """Ids of the prompt. Raises BadRequestError where the template refuses the roles."""
    try:
        return template.prompt_ids(messages)
    except UsageError as error:
        raise BadRequestError(str(error)) from error
