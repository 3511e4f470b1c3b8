"""Answers as OpenAI-compatible JSON. Pure."""

import json
import time
import uuid
from typing import Any

from dialrl.engine.base import Generation
from dialrl.engine.serving.asked import Asked
from dialrl.model.template import ChatTemplate

Json = dict[str, Any]


def chat_answer(name: str, asked: Asked, reply: Generation, template: ChatTemplate) -> Json:
    """A chat completion: text, thoughts apart from it, or a tool call."""
    decoded = template.decode_reply(reply.reply_ids, reply.finish_reason)
    text, is_cut = _cut_at(decoded.reply.lstrip("\n"), asked.stops)
    message: Json = {"role": "assistant", "content": text}
    finish: str = "stop" if is_cut else reply.finish_reason
    if decoded.thinking is not None:
        message["reasoning_content"] = decoded.thinking
    call = _tool_call(text) if asked.tools else None
    if call is not None:
        message, finish = {"role": "assistant", "content": None, "tool_calls": [call]}, "tool_calls"
    return _answer("chat.completion", name, asked, reply, {"index": 0, "message": message, "finish_reason": finish})


def completion_answer(name: str, asked: Asked, reply: Generation, template: ChatTemplate, body: Json) -> Json:
    """A completion; with ids and log-probs of the drawn distribution where they are asked for."""
    ended = reply.reply_ids[:-1] if reply.finish_reason == "stop" else reply.reply_ids
    text, is_cut = _cut_at(template.decode(ended) if ended else "", asked.stops)
    choice: Json = {"index": 0, "text": text, "finish_reason": "stop" if is_cut else reply.finish_reason}
    if body.get("logprobs") is not None:
        tokens = [template.decode([token]) for token in reply.reply_ids]
        choice["logprobs"] = {"tokens": tokens, "token_logprobs": reply.logprobs}
    if body.get("return_token_ids"):
        choice |= {"token_ids": reply.reply_ids, "prompt_token_ids": asked.prompt_ids}
    return _answer("text_completion", name, asked, reply, choice)


def _answer(kind: str, name: str, asked: Asked, reply: Generation, choice: Json) -> Json:
    prompt, completion = len(asked.prompt_ids), len(reply.reply_ids)
    return {
        "id": f"dialrl-{uuid.uuid4().hex}",
        "object": kind,
        "created": int(time.time()),
        "model": name,
        "choices": [choice],
        "usage": {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion},
    }


def _cut_at(text: str, stops: tuple[str, ...]) -> tuple[str, bool]:
    places = [text.find(stop) for stop in stops if stop and stop in text]
    return (text[: min(places)], True) if places else (text, False)


def _tool_call(text: str) -> Json | None:
    """The call that an answer spells out, or None where it is none."""
    try:
        found = json.loads(text[text.find("{") : text.rfind("}") + 1])
        name, arguments = found["name"], found["arguments"]
    except (ValueError, KeyError, TypeError):
        return None
    function = {"name": str(name), "arguments": json.dumps(arguments, ensure_ascii=False)}
    return {"id": f"call-{uuid.uuid4().hex[:12]}", "type": "function", "function": function}
