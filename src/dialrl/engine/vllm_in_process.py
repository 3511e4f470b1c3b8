"""vLLM inside this process: its asynchronous engine on a thread of its own, so it outlives any event loop of ours.

Needs the package ``vllm`` in this interpreter. Ids go in, ids and log-probs of the drawn distribution come out. Not
here: the server (``vllm_server``), the ladder (``delivery``).
"""

import asyncio
import os
import sys
import threading
from collections.abc import Coroutine, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from dialrl.endpoint.calls import ModelCalls
from dialrl.engine.base import Generation, GenerationRequest, SamplingSettings
from dialrl.engine.vllm_host import HostError
from dialrl.engine.vllm_platform import runs_on_cpu, whole_prompt_tokens
from dialrl.engine.vllm_server import PRIVATE, PROBED_TOKENS, fitting_rank
from dialrl.engine.vllm_settings import SERVED_NAME, VllmSettings
from dialrl.errors import EngineError, MissingExtraError, UsageError

T = TypeVar("T")
_START_OF_NAMES = "--"


class InProcessHost:
    """One vLLM engine of this process. ``stops``: tokens that end a reply. Raises MissingExtraError without vllm."""

    def __init__(self, settings: VllmSettings, stops: Sequence[int]) -> None:
        if find_spec("vllm") is None:
            raise MissingExtraError(
                "The engine 'vllm' in process needs the package 'vllm' in this interpreter. Install it with"
                " pip install 'dialrl[vllm]' (a GPU); on a CPU run dialrl from the environment that `make vllm-env`"
                " makes, .venv-vllm/bin/dialrl. Or use engine_options.mode=server, which runs vllm in another one."
            )
        self._settings, self._stops = settings, list(stops)
        self._engine: Any = None
        self._adapters: dict[str, Any] = {}
        self._count, self._adapter_number = 0, 0
        self.model: Path | None = None
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="vllm", daemon=True).start()

    def connect(self, calls: ModelCalls) -> None:
        """Nothing to connect to: no endpoint is asked."""

    def start(self, model: Path) -> None:
        # vLLM reads its variables when it is imported, and the processes it starts inherit them.
        os.environ.update({**PRIVATE, **self._settings.environment})
        os.environ.setdefault("VLLM_LOGGING_STREAM", "ext://sys.stderr")  # stdout holds a command's summary alone
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
        arguments = engine_arguments(self._settings, model)
        self._engine = self._do(_opened(arguments))
        self.model = model

    def stop(self) -> None:
        if self._engine is not None:
            self._do(_called(self._engine.shutdown))
        self._engine, self.model, self._adapters = None, None, {}

    def drain(self) -> None:
        self._told(self._engine.pause_generation(mode="wait"))

    def resume(self) -> None:
        self._told(self._engine.resume_generation())

    def reload(self, model: Path) -> None:
        self._told(self._engine.collective_rpc("reload_weights", kwargs={"weights_path": str(model)}))
        self.model = model
        if not self._told(self._engine.reset_prefix_cache()):
            raise HostError("vLLM could not drop its cached prefixes, which hold values of the old weights")

    def transfer(self, model: Path) -> None:
        raise HostError(str(self.cannot_transfer()))

    def cannot_transfer(self) -> str | None:
        return "needs vLLM as a server (engine_options.mode=server)"

    def add_adapter(self, name: str, folder: Path) -> None:
        self._adapter_number += 1
        request = import_module("vllm.lora.request").LoRARequest(name, self._adapter_number, str(folder.resolve()))
        self._told(self._engine.add_lora(request))
        self._adapters[name] = request

    def remove_adapter(self, name: str) -> None:
        self._told(self._engine.remove_lora(self._adapters.pop(name).lora_int_id))

    def next_logprobs(self, prompts: Sequence[Sequence[int]], model_name: str) -> list[dict[int, float]]:
        settings = {"max_tokens": 1, "temperature": 1.0, "seed": 0, "logprobs": PROBED_TOKENS}
        answers = [self._told(self._generate(prompt, settings, model_name)) for prompt in prompts]
        return [{token: held.logprob for token, held in answer.outputs[0].logprobs[0].items()} for answer in answers]

    async def draw(self, request: GenerationRequest, sampling: SamplingSettings, model_name: str) -> Generation:
        """One reply, whatever loop asks."""
        settings = sampling_values(request, sampling, self._stops)
        work = asyncio.run_coroutine_threadsafe(self._generate(request.prompt_ids, settings, model_name), self._loop)
        try:
            answer = await asyncio.wrap_future(work)
        except ValueError as error:  # a request that vLLM refuses, such as a prompt that is too long
            return Generation([], None, "error", error=str(error))
        return _read(answer, len(request.prompt_ids))

    async def _generate(self, prompt: Sequence[int], settings: Mapping[str, Any], model_name: str) -> Any:
        self._count += 1
        vllm = import_module("vllm")
        kind = import_module("vllm.sampling_params").RequestOutputKind.FINAL_ONLY
        parameters = vllm.SamplingParams(**settings, detokenize=False, output_kind=kind)
        adapter = None if model_name == SERVED_NAME else self._adapters[model_name]
        last = None
        async for output in self._engine.generate(
            {"prompt_token_ids": list(prompt)}, parameters, f"dialrl-{self._count}", lora_request=adapter
        ):
            last = output
        return last

    def _told(self, work: "Coroutine[Any, Any, T]") -> T:
        """The result of something vLLM is told; its own errors become HostError."""
        try:
            return self._do(work)
        except (RuntimeError, ValueError, OSError, TypeError, KeyError, AttributeError) as error:
            raise HostError(f"vLLM failed: {type(error).__name__}: {error}") from error

    def _do(self, work: "Coroutine[Any, Any, T]") -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


def engine_arguments(settings: VllmSettings, model: Path) -> dict[str, Any]:
    """Arguments of vLLM's engine; ``extra_arguments`` are read as --name, or --name=value (YAML)."""
    arguments: dict[str, Any] = {
        "model": str(model),
        "dtype": settings.dtype,
        "max_model_len": settings.max_model_len,
        "logprobs_mode": "processed_logprobs",
        "generation_config": "vllm",
        "enable_prefix_caching": True,
        "disable_log_stats": True,
    }
    if runs_on_cpu(settings.updated(python=sys.executable)):
        tokens = whole_prompt_tokens(model, settings)
        arguments |= {"enable_chunked_prefill": False, "max_num_batched_tokens": tokens}
    if settings.lora_rank is not None:
        arguments |= {"enable_lora": True, "max_lora_rank": fitting_rank(settings.lora_rank)}
    return {**arguments, **_named(settings.extra_arguments)}


def _named(arguments: Sequence[str]) -> dict[str, Any]:
    import yaml

    values = {}
    for argument in arguments:
        name, separator, value = argument.partition("=")
        if not name.startswith(_START_OF_NAMES):
            raise UsageError(
                f"engine_options.extra_arguments holds '{argument}'; in process expected --name or --name=value, each"
                " as one item."
            )
        values[name.removeprefix(_START_OF_NAMES).replace("-", "_")] = yaml.safe_load(value) if separator else True
    return values


def sampling_values(request: GenerationRequest, sampling: SamplingSettings, stops: Sequence[int]) -> dict[str, Any]:
    """vLLM's sampling parameters for one reply."""
    return {
        "max_tokens": request.max_reply_tokens or sampling.max_reply_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": sampling.min_p,
        "seed": request.seed & 0x7FFFFFFF,
        "logprobs": 0,
        "stop_token_ids": list(stops),
    }


def _read(answer: Any, prompt_tokens: int) -> Generation:
    if answer is None or not answer.outputs:
        return Generation([], None, "error", error="vLLM gave no output")
    drawn = answer.outputs[0]
    ids = list(drawn.token_ids)
    if drawn.finish_reason not in ("stop", "length") or drawn.logprobs is None:
        return Generation([], None, "error", error=f"finish_reason '{drawn.finish_reason}' of vLLM")
    logprobs = [held[token].logprob for token, held in zip(ids, drawn.logprobs, strict=True)]
    finish = "stop" if drawn.finish_reason == "stop" else "length"
    return Generation(ids, logprobs, finish, prompt_tokens, int(answer.num_cached_tokens or 0))  # type: ignore[arg-type]


async def _opened(arguments: Mapping[str, Any]) -> Any:
    """The engine, made inside the loop that it will live in."""
    vllm = import_module("vllm")
    asynchronous = import_module("vllm.v1.engine.async_llm").AsyncLLM
    try:
        return asynchronous.from_engine_args(vllm.AsyncEngineArgs(**arguments))
    except (RuntimeError, ValueError, OSError, TypeError) as error:
        raise EngineError(f"vLLM did not start in this process: {type(error).__name__}: {error}") from error


async def _called(function: Any) -> None:
    function()
