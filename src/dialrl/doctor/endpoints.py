"""Models behind endpoints: do they answer, do they know the model, and can they do what their role needs.

Lists models with the standard library alone; then one short call a role: token ids and log-probs (a policy that is to
be trained), JSON by schema (a judge), a tool (a director). Keys are named by their variable and never shown.
"""

import json
import os
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dialrl.concurrency import run_async
from dialrl.config import nearest
from dialrl.doctor.check import Check, Status
from dialrl.doctor.software import installed
from dialrl.doctor.subject import Role, Subject
from dialrl.endpoint.calls import ModelCalls
from dialrl.endpoint.chat import ChatReply, chat
from dialrl.endpoint.failure import EndpointError, ModelCallError, redacted
from dialrl.endpoint.served import HF_SCHEME, is_own
from dialrl.endpoint.settings import EndpointSettings, ModelSettings
from dialrl.errors import MissingInputError, UsageError
from dialrl.model.find import find_policy
from dialrl.scenario.message import Message

AREA = "Endpoints"
_SECONDS = 5.0
_SHOWN_MODELS = 5
_ANSWER_TOKENS = 200
_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"level": {"type": "integer", "enum": [0, 1, 2]}},
    "required": ["level"],
    "additionalProperties": False,
}
_TOOL = {
    "type": "function",
    "function": {"name": "observe", "description": "Wait.", "parameters": {"type": "object", "properties": {}}},
}
_ASKED = {
    None: "Say hello in one word.",
    "grades": 'How friendly is "Good morning"? Answer with JSON: {"level": 0, 1 or 2}.',
    "tools": "Call the tool observe.",
}
_FURTHER: dict[str | None, dict[str, Any]] = {
    "grades": {
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "grade", "strict": True, "schema": _SCHEMA},
        }
    },
    "tools": {"tools": [_TOOL], "tool_choice": "required"},
}


class UnreachableError(Exception):
    """An address gave no list of models; the message says why."""


def endpoints(subject: Subject) -> list[Check]:
    """Every role's addresses, and what the model behind them can do."""
    roles = subject.roles()
    if not roles:
        return [Check(AREA, "roles", "not applicable", "no role is played by a model behind an endpoint")]
    return [check for role in roles for check in _role_checks(role)]


def _role_checks(role: Role) -> list[Check]:
    try:
        addresses = role.endpoint.base_urls or role.endpoint.addresses
    except UsageError as error:
        return [Check(AREA, role.name, "failed", "no address", str(error))]
    served = [address for address in addresses if is_own(address)]
    if served:
        return [_own(role, address) for address in served]
    reached = [_reach(role, address) for address in addresses]
    if any(check.status == "failed" for check in reached):
        return reached
    model = role.model or next(iter(reached[0].details.get("models", ())), None)
    if model is None:
        return reached
    if installed("httpx2") is None:
        missing = "not asked: the HTTP client is not installed"
        return [*reached, Check(AREA, f"{role.name} call", "not applicable", missing, "pip install 'dialrl[openai]'")]
    return [*reached, _gives_ids(role, model) if role.task == "ids" else _call(role, model)]


def _own(role: Role, address: str) -> Check:
    """A model that the run loads or starts itself: its directory is there, and the role asks for it by its name."""
    if not address.startswith(HF_SCHEME):
        return Check(AREA, role.name, "not applicable", f"{address}: started by the run itself")
    place = address.removeprefix(HF_SCHEME)
    try:
        find_policy(place)
    except MissingInputError as error:
        return Check(AREA, role.name, "failed", f"{address}: {error}")
    names = (Path(place).name, place)
    if role.model not in (None, *names):
        return Check(AREA, role.name, "failed", f"{address} is called '{names[0]}'; the role asks for '{role.model}'")
    if role.task in ("grades", "tools") and not can_constrain():
        found = f"{address}: loaded by the run; its answers are not held to a schema"
        return Check(AREA, role.name, "warning", found, "pip install 'dialrl[serve]'")
    return Check(AREA, role.name, "ok", f"{address}: loaded by the run itself")


def _reach(role: Role, address: str) -> Check:
    name = role.name if role.name != address else "given"
    key = _key(role.endpoint)
    try:
        models = listed_models(address, role.endpoint)
    except UnreachableError as error:
        advice = "Start the server, or mend base_urls (docs/endpoints.md)." if "key" not in str(error) else None
        return Check(AREA, name, "failed", f"{address}: {error}; {key}", advice)
    details = {"address": address, "models": models}
    shown = ", ".join(models[:_SHOWN_MODELS]) + (f" and {len(models) - 5} more" if len(models) > _SHOWN_MODELS else "")
    found = f"{address} answers; {key}; serves {shown or 'no model'}"
    if role.model is not None and role.model not in models:
        advice = f"The role asks for '{role.model}'.{nearest(role.model, models)} Serve it, or change the model's name."
        return Check(AREA, name, "failed", found, advice, details)
    return Check(AREA, name, "ok", found, details=details)


def _key(endpoint: EndpointSettings) -> str:
    """The key by the name of its variable."""
    return f"key {endpoint.api_key_env} {'set' if os.environ.get(endpoint.api_key_env) else 'not set'}"


def listed_models(address: str, endpoint: EndpointSettings) -> list[str]:
    """Names of the models at ``address``. Raises UnreachableError."""
    headers = {"Authorization": f"Bearer {endpoint.key}"} if endpoint.key else {}
    request = urllib.request.Request(f"{address}/models", headers=headers)  # noqa: S310 - the settings take http(s) only
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:  # noqa: S310
            content = json.loads(answer.read(2**22))
        return [str(entry["id"]) for entry in content["data"]]
    except urllib.error.HTTPError as error:
        refused = error.code in (401, 403)
        why = f"refuses the key (set {endpoint.api_key_env})" if refused else f"answers status {error.code} to /models"
        raise UnreachableError(why) from None
    except (OSError, urllib.error.URLError) as error:
        reason = getattr(error, "reason", None) or error
        raise UnreachableError(f"nobody answers ({redacted(str(reason), endpoint.key)})") from None
    except (ValueError, KeyError, TypeError):
        raise UnreachableError("its list of models cannot be read (is this an OpenAI-compatible /v1?)") from None


def _gives_ids(role: Role, model: str) -> Check:
    from dialrl.engine.openai_probe import gives_token_ids

    name = f"{role.name if role.model else 'given'} ids"
    if gives_token_ids(ModelSettings(model=model), role.endpoint):
        return Check(AREA, name, "ok", f"'{model}' gives token ids and log-probs: its dialogues can be trained on")
    found = f"'{model}' gives no token ids with log-probs: it can be evaluated, not trained"
    status: Status = "failed" if role.name == "policy" else "warning"
    return Check(AREA, name, status, found, "vLLM does (/v1/completions with return_token_ids).")


def _call(role: Role, model: str) -> Check:
    """One answer, in the form that the role needs."""
    name = f"{role.name} call"
    try:
        reply = run_async(_ask(role, model))
    except (ModelCallError, EndpointError) as error:
        return Check(AREA, name, "failed", f"'{model}' gave no answer: {error}", _advice(role.task))
    fault = _fault(role.task, reply)
    if fault is not None:
        return Check(AREA, name, "warning", f"'{model}' answers, but {fault}", _advice(role.task))
    does = {"grades": "answers in JSON by schema", "tools": "calls tools"}.get(role.task or "", "answers")
    return Check(AREA, name, "ok", f"'{model}' {does}")


async def _ask(role: Role, model: str) -> ChatReply:
    settings = ModelSettings(model=model, temperature=0.0, max_tokens=_ANSWER_TOKENS, extra=dict(role.extra or {}))
    messages: Sequence[Message] = [Message("user", _ASKED.get(role.task, _ASKED[None]))]
    calls = ModelCalls({role.name: role.endpoint.updated(attempts=2)})
    further: Mapping[str, Any] = _FURTHER.get(role.task, {})
    async with calls:
        return await chat(calls, role.name, settings, messages, seed=0, **further)


def can_constrain() -> bool:
    """Whether a model of this machine can be held to a JSON schema."""
    return installed("llguidance") is not None


def _fault(task: str | None, reply: ChatReply) -> str | None:
    """Why an answer would not do for its role."""
    if task == "tools":
        return None if reply.tool_calls else "calls no tool: the person would go without guidance (director_invalid)"
    if task == "grades":
        try:
            level = json.loads(reply.text)["level"]
        except (ValueError, KeyError, TypeError):
            return f"not in JSON by schema ({reply.text[:60]!r}): judgements would be missing"
        return None if level in (0, 1, 2) else f"with level {level!r}, which the schema does not allow"
    if reply.text.lstrip().startswith("<think>"):
        return "thinks aloud: what the person says would begin with <think>"
    return None if reply.text.strip() else "says nothing"


def _advice(task: str | None) -> str:
    return {
        "grades": "Use a server with JSON-schema decoding (vLLM has it), or set judge_options.response_format.",
        "tools": "vLLM: --enable-auto-tool-choice --tool-call-parser NAME. Or leave the director out.",
    }.get(task or "", "Qwen3: extra: {chat_template_kwargs: {enable_thinking: false}}. See docs/endpoints.md.")
