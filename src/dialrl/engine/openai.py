"""The engine ``openai``: a policy behind any OpenAI-compatible endpoint, asked as a stream.

Two ways, ``mode``. *ids*: prompt ids to ``/completions``, ids and log-probs back (``return_token_ids``, as vLLM has
it): what such a rollout writes can be trained on. *chat*: messages to ``/chat/completions``, text back: evaluated,
never trained, since neither the ids nor their probabilities are known. ``auto`` asks the endpoint once for one token. A
request that fails for good breaks its dialogue; an endpoint that serves nothing ends the rollout. Not here: delivering
weights, the server.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from dialrl.config import validated
from dialrl.endpoint.calls import Answer, ModelCalls
from dialrl.endpoint.chat import chat
from dialrl.endpoint.failure import ModelCallError
from dialrl.endpoint.ledger import usage_of
from dialrl.endpoint.settings import ModelSettings
from dialrl.engine.base import EngineCapabilities, Generation, GenerationRequest, SamplingSettings
from dialrl.errors import RunError, UsageError
from dialrl.model.digest import policy_digest
from dialrl.scenario.message import Usage

Mode = Literal["ids", "chat"]
ROLE = "policy"
COMPLETIONS = "/completions"
_FINISH: dict[str, Literal["stop", "length"]] = {"stop": "stop", "length": "length", "tool_calls": "stop"}


class OpenAIEngine:
    """Draws replies from the model named in ``settings``.

    ``policy_digest`` names the model, since nobody can look at its weights: ``endpoint:NAME``, or the digest of the
    policy directory that the server was started from.
    """

    def __init__(
        self, settings: ModelSettings, mode: Mode, policy_digest: str, noted: Callable[[ModelCalls], None] | None = None
    ) -> None:
        self._settings = settings
        self._mode = mode
        self.policy_digest = policy_digest
        has_ids = mode == "ids"
        self.capabilities = EngineCapabilities("stream", token_ids=has_ids, logprobs=has_ids, deterministic=False)
        self._calls: ModelCalls | None = None
        self._noted = noted

    def connect(self, calls: ModelCalls) -> None:
        """Ask through ``calls``; the first ones also take over the call that decided the mode (``noted``)."""
        self._calls = calls
        if self._noted is not None:
            self._noted(calls)
            self._noted = None

    def generate_block(self, requests: Sequence[GenerationRequest], sampling: SamplingSettings) -> list[Generation]:
        raise RunError("The engine 'openai' takes requests one by one (schedule 'stream'): use generate.")

    async def generate(self, request: GenerationRequest, sampling: SamplingSettings) -> Generation:
        """One reply; ``finish_reason`` "error" and the reason where the endpoint gave none."""
        if self._calls is None:
            raise RunError("The engine 'openai' was asked before connect(); roll out through dialrl.rollout.stage.")
        try:
            if self._mode == "ids":
                return await self._by_ids(self._calls, request, sampling)
            return await self._by_chat(self._calls, request, sampling)
        except ModelCallError as error:
            return Generation([], None, "error", error=str(error))

    def load_weights(self, policy: Path) -> None:
        raise UsageError(
            "The engine 'openai' cannot give new weights to a server that it did not start. Serve the new policy and"
            " roll out again, or train with the engine hf."
        )

    def close(self) -> None:
        pass

    async def _by_ids(self, calls: ModelCalls, request: GenerationRequest, sampling: SamplingSettings) -> Generation:
        limit = request.max_reply_tokens or sampling.max_reply_tokens
        body = completion_body(self._settings, request.prompt_ids, sampling, limit)
        body["seed"] = request.seed & 0x7FFFFFFF
        answer = await calls.post(ROLE, COMPLETIONS, body, seed=request.seed, limit=limit, route=request.dialogue)
        return read_completion(answer, prompt_tokens=len(request.prompt_ids))

    async def _by_chat(self, calls: ModelCalls, request: GenerationRequest, sampling: SamplingSettings) -> Generation:
        limit = request.max_reply_tokens or sampling.max_reply_tokens
        settings = self._settings.updated(temperature=sampling.temperature, max_tokens=limit)
        further = {"top_p": sampling.top_p} if sampling.top_p < 1 else {}
        reply = await chat(
            calls, ROLE, settings, request.messages, seed=request.seed, route=request.dialogue, **further
        )
        finish = _FINISH.get(reply.finish_reason)
        if finish is None:
            return Generation([], None, "error", error=f"finish_reason '{reply.finish_reason}' of the endpoint")
        usage = reply.usage
        return Generation(
            [], None, finish, usage.prompt_tokens, usage.cached_tokens, reply.text, usage.completion_tokens
        )


def completion_body(
    settings: ModelSettings, prompt_ids: Sequence[int], sampling: SamplingSettings, limit: int
) -> dict[str, Any]:
    """The request for ids and log-probs. The end-of-turn token is kept, because it is trained too."""
    body: dict[str, Any] = {
        "model": settings.model,
        "prompt": list(prompt_ids),
        "max_tokens": limit,
        "temperature": sampling.temperature,
        "logprobs": 0,
        "return_token_ids": True,
        **settings.extra,
    }
    cuts = {"top_p": (sampling.top_p, 1.0), "top_k": (sampling.top_k, 0), "min_p": (sampling.min_p, 0.0)}
    return {**body, **{name: value for name, (value, off) in cuts.items() if value != off}}


def read_completion(answer: Answer, *, prompt_tokens: int) -> Generation:
    """Ids and log-probs of a completion. Raises ModelCallError when they are not there, or not one for each other."""
    try:
        choice = answer["choices"][0]
        ids, logprobs = choice["token_ids"], choice["logprobs"]["token_logprobs"]
        finish = _FINISH[choice["finish_reason"]]
    except (KeyError, IndexError, TypeError):
        raise ModelCallError("bad_response", "no token_ids, logprobs or known finish_reason in choices[0]") from None
    if not _are_ids(ids) or not _are_logprobs(logprobs) or len(ids) != len(logprobs):
        raise ModelCallError("bad_response", "token_ids and token_logprobs are not one number for each other")
    usage = usage_of(ROLE, answer, Usage(ROLE, prompt_tokens, 0, len(ids)))
    return Generation(ids, [float(value) for value in logprobs], finish, usage.prompt_tokens, usage.cached_tokens)


def _are_ids(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and value >= 0 for value in values)


def _are_logprobs(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) in (int, float) and math.isfinite(value) for value in values)


def engine_settings(options: Mapping[str, Any], policy: str | Path) -> tuple[ModelSettings, str]:
    """Model settings and mode in ``engine_options``; the policy's own name is the model's unless it says otherwise."""
    values = {"model": str(policy), **options}
    mode = str(values.pop("mode", "auto"))
    if mode not in ("auto", "ids", "chat"):
        raise UsageError(f"engine_options.mode is '{mode}'; expected auto, ids or chat.")
    return validated(ModelSettings, values, where="engine_options"), mode


def with_template_options(settings: ModelSettings, options: Mapping[str, Any]) -> ModelSettings:
    """Settings that send ``options`` along as ``chat_template_kwargs``, for the endpoint that renders the template."""
    if not options:
        return settings
    if "chat_template" in options:
        raise UsageError(
            "template_options.chat_template is for a policy reached by token ids; this endpoint renders chats by its"
            " own template. Start the server with that template, or leave the option out."
        )
    own = settings.extra.get("chat_template_kwargs", {})
    return settings.updated(extra={**settings.extra, "chat_template_kwargs": {**options, **own}})


def served_digest(policy: str | Path, model: str) -> str:
    """Whose weights a server draws from: the digest of the directory it was started from, else the model's name."""
    for directory in (Path(policy) / "model", Path(policy)):
        if any(directory.glob("*.safetensors")):
            return policy_digest(directory)
    return f"endpoint:{model}"
