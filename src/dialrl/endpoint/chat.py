"""One chat completion: messages to a request body, the answer to text or a tool call. Pure but for the call itself."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dialrl.endpoint.calls import Answer, ModelCalls
from dialrl.endpoint.failure import ModelCallError
from dialrl.endpoint.ledger import usage_of
from dialrl.endpoint.settings import ModelSettings
from dialrl.scenario.message import Message, Usage

PATH = "/chat/completions"


@dataclass(frozen=True)
class ToolCall:
    """A function the model calls; ``arguments`` is None where they are no JSON object."""

    name: str
    arguments: dict[str, Any] | None


@dataclass(frozen=True)
class ChatReply:
    """What a chat model said. ``finish_reason`` as the endpoint gives it: stop, length, tool_calls ..."""

    text: str
    finish_reason: str
    tool_calls: tuple[ToolCall, ...]
    usage: Usage


def chat_body(settings: ModelSettings, messages: Sequence[Message], seed: int, **further: Any) -> dict[str, Any]:
    """The request body; ``further`` keys (tools, response_format ...) stand beside the settings' own ``extra``."""
    body: dict[str, Any] = {
        "model": settings.model,
        "messages": [{"role": message.role, "content": message.content} for message in messages],
        "temperature": settings.temperature,
        settings.max_tokens_field: settings.max_tokens,
        **further,
        **settings.extra,
    }
    # 31 bits: some endpoints read the seed as a signed 32-bit number.
    return {**body, "seed": seed & 0x7FFFFFFF} if settings.send_seed else body


async def chat(
    calls: ModelCalls,
    role: str,
    settings: ModelSettings,
    messages: Sequence[Message],
    *,
    seed: int,
    route: str = "",
    **further: Any,
) -> ChatReply:
    """Ask ``role``'s model. Raises ModelCallError when the call failed or its answer is no chat completion."""
    body = chat_body(settings, messages, seed, **further)
    answer = await calls.post(role, PATH, body, seed=seed, limit=settings.max_tokens, route=route)
    return read_reply(role, answer)


def read_reply(role: str, answer: Answer) -> ChatReply:
    """The completion in an endpoint's answer."""
    try:
        choice = answer["choices"][0]
        message = choice["message"]
        text = message.get("content") or ""
        tools = tuple(_tool_call(call) for call in message.get("tool_calls") or ())
    except (KeyError, IndexError, TypeError, AttributeError):
        raise ModelCallError("bad_response", "the answer is no chat completion (choices[0].message)") from None
    if not isinstance(text, str):
        raise ModelCallError("bad_response", "the answer's content is no text")
    return ChatReply(text, str(choice.get("finish_reason")), tools, usage_of(role, answer, Usage(role, 0, 0, 0)))


def _tool_call(call: Mapping[str, Any]) -> ToolCall:
    function = call["function"]
    try:
        arguments = json.loads(function.get("arguments") or "{}")
    except (ValueError, TypeError):
        arguments = None
    return ToolCall(str(function["name"]), arguments if isinstance(arguments, dict) else None)
