"""The engine ``vllm``: replies drawn by a vLLM that this process starts, gives new weights, and ends.

Token ids go in, ids and the log-probs of the drawn distribution come out, one request at a time (schedule "stream").
As a server requests take the way of the engine ``openai`` (paced, retried, journalled); in process they go to vLLM
itself. Which weights are served is the ladder's affair (``delivery``); every change is compared with the trainer.
"""

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

from dialrl.endpoint.calls import ModelCalls
from dialrl.endpoint.failure import EndpointError
from dialrl.endpoint.served import SCHEME, announce, withdraw
from dialrl.endpoint.settings import EndpointSettings, ModelSettings
from dialrl.engine.base import EngineCapabilities, Generation, GenerationRequest, SamplingSettings
from dialrl.engine.delivery import Delivery, Ladder, weights_of
from dialrl.engine.delivery_probe import Prompts, Reference, probe_prompts, reference_of, stored_reference
from dialrl.engine.openai import ROLE, OpenAIEngine
from dialrl.engine.vllm_platform import context_limit, visible_devices
from dialrl.engine.vllm_process import work_folder
from dialrl.engine.vllm_server import ServerHost
from dialrl.engine.vllm_settings import SERVED_NAME, VllmSettings
from dialrl.errors import MissingExtraError, RunError
from dialrl.json_file import read_object
from dialrl.model.base import read_base
from dialrl.model.digest import policy_digest
from dialrl.model.loading import PRECISIONS, Precision, load_tokenizer, model_directory
from dialrl.model.stopping import stop_ids
from dialrl.model.template import ChatTemplate

_OWN_ENDPOINT = EndpointSettings(concurrency=256, timeout_seconds=600)  # vLLM queues by itself, and nobody else asks
_REFERENCES_KEPT = 4  # with a lag, and for evaluation, weights are delivered that are not the latest


class Draws(Protocol):
    """How one reply is asked for."""

    async def draw(self, request: GenerationRequest, sampling: SamplingSettings, model_name: str) -> Generation: ...

    def connect(self, calls: ModelCalls) -> None: ...


class VllmEngine:
    """Draws replies from vLLM. ``policy_digest``: of the weights it serves now; ``stop_ids`` end a reply."""

    def __init__(
        self,
        ladder: Ladder,
        draws: Draws,
        policy: Path,
        work: Path,
        prompts: Prompts,
        stops: Sequence[int] | None = None,
    ) -> None:
        self.ladder = ladder
        self._draws, self._work, self._prompts = draws, work, prompts
        self._references: dict[str, Reference] = {}
        model = model_directory(policy)
        self.policy_digest = policy_digest(model)
        self.stop_ids = tuple(reply_stop_ids(model) if stops is None else stops)
        self.capabilities = EngineCapabilities(
            schedule="stream",
            token_ids=True,
            logprobs=True,
            deterministic=False,
            context_limit_tokens=context_limit(model, ladder.settings),
        )

    def connect(self, calls: ModelCalls) -> None:
        """Ask through ``calls`` (server), which from now on reach the policy here."""
        self._draws.connect(calls)

    def generate_block(self, requests: Sequence[GenerationRequest], sampling: SamplingSettings) -> list[Generation]:
        raise RunError("The engine 'vllm' takes requests one by one (schedule 'stream'): use generate.")

    async def generate(self, request: GenerationRequest, sampling: SamplingSettings) -> Generation:
        """One reply; ``finish_reason`` "error" and why where there is none. Raises EngineError when vLLM is gone."""
        return await self._draws.draw(request, sampling, self.ladder.model_name)

    def expect(self, policy: str | Path, model: Any) -> None:
        """Note what ``model``, the trainer's own with the weights of ``policy``, gives at the probe's prompts."""
        self._references[policy_digest(model_directory(policy))] = reference_of(model, self._prompts)
        for oldest in list(self._references)[:-_REFERENCES_KEPT]:
            del self._references[oldest]

    def load_weights(self, policy: Path) -> None:
        """Deliver a policy by the best rung that works; compared with the trainer's model as noted by ``expect``, else
        with the policy's directory loaded in transformers. Raises EngineError when no rung is left."""
        self.deliver(policy)

    def deliver(self, policy: Path) -> Delivery:
        """``load_weights``, and what it took."""
        weights = weights_of(policy)
        reference = self._references.get(weights.digest) or self.reference(policy)
        delivery = self.ladder.deliver(weights, reference)
        self.policy_digest = weights.digest
        return delivery

    def reference(self, policy: str | Path) -> Reference:
        """The reference of a policy directory."""
        settings = self.ladder.settings
        precision: Precision = settings.dtype  # type: ignore[assignment]  # resolved: never "auto" here
        return stored_reference(policy, self._prompts, device=settings.reference_device, precision=precision)

    @property
    def deliveries(self) -> Sequence[Delivery]:
        """All deliveries so far, oldest first; the last one tells the rung in use."""
        return self.ladder.history

    def close(self) -> None:
        """End vLLM and remove what was written for it."""
        withdraw(SERVED_NAME)
        self.ladder.host.stop()
        shutil.rmtree(self._work, ignore_errors=True)


class ServerDraws:
    """Requests to the server, by way of the engine ``openai``."""

    def __init__(self, host: ServerHost, endpoint: EndpointSettings, stops: Sequence[int]) -> None:
        self._host, self._endpoint, self._stops = host, endpoint, list(stops)
        self._calls: ModelCalls | None = None

    def connect(self, calls: ModelCalls) -> None:
        self._calls = calls
        calls.reach(ROLE, self._endpoint.updated(base_urls=[SCHEME + SERVED_NAME]))

    async def draw(self, request: GenerationRequest, sampling: SamplingSettings, model_name: str) -> Generation:
        settings = ModelSettings(model=model_name, extra={"stop_token_ids": self._stops})
        asked = OpenAIEngine(settings, "ids", "")
        if self._calls is not None:
            asked.connect(self._calls)
        try:
            reply = await asked.generate(request, sampling)
        except EndpointError:
            self._check_alive()
            raise
        if reply.finish_reason == "error":
            self._check_alive()  # a server that is gone is no dialogue's fault
        return reply

    def _check_alive(self) -> None:
        process = self._host.process
        if process is not None and not process.is_alive:
            raise process.death("while it was asked for replies")


def open_vllm(
    policy: str | Path,
    settings: VllmSettings,
    *,
    device: str = "cpu",
    endpoint: EndpointSettings | None = None,
    template_options: Mapping[str, Any] | None = None,
) -> VllmEngine:
    """vLLM with the weights of ``policy``, started and compared with them; its template tells where replies end.

    ``device``: the GPUs a server may use ("cuda:1"); ``endpoint``: pacing and timeouts of its requests.

    Raises MissingExtraError naming what to install, EngineError (with the log's end) when vLLM does not start or serves
    other log-probs than the weights have.
    """
    model = model_directory(policy)
    work = work_folder()
    settings = settings.updated(dtype=dtype_of(model, settings), environment=_environment(settings, device))
    stops = reply_stop_ids(model, template_options)
    host, draws = _host_and_draws(settings, work, stops, endpoint or _OWN_ENDPOINT)
    ladder = Ladder(host, settings, work)
    prompts = probe_prompts(model, context_limit(model, settings) - 2)
    engine = VllmEngine(ladder, draws, Path(policy), work, prompts, stops)
    try:
        weights = weights_of(policy)
        ladder.start(weights, _reference_if_possible(engine, policy), base=_base_to_serve(weights.adapter, settings))
    except BaseException:  # also on Ctrl-C: nothing that was started may stay
        engine.close()
        raise
    if isinstance(host, ServerHost):
        announce(SERVED_NAME, host.url)
    return engine


def _environment(settings: VllmSettings, device: str) -> dict[str, str]:
    """The options' variables, and the GPUs of ``device`` for a server; in process the trainer's own would be hidden."""
    shown = visible_devices(device, os.environ.get("CUDA_VISIBLE_DEVICES")) if settings.mode == "server" else {}
    return {**shown, **settings.environment}


def _host_and_draws(
    settings: VllmSettings, work: Path, stops: Sequence[int], endpoint: EndpointSettings
) -> tuple[Any, Draws]:
    if settings.mode == "in-process":
        from dialrl.engine.vllm_in_process import InProcessHost

        inside = InProcessHost(settings, stops)
        return inside, inside
    host = ServerHost(settings, work / "server.log")
    return host, ServerDraws(host, endpoint, stops)


def _reference_if_possible(engine: VllmEngine, policy: str | Path) -> Reference | None:
    """None where transformers or torch are not installed: then replies are drawn without a comparison."""
    try:
        return engine.reference(policy)
    except MissingExtraError:
        return None


def _base_to_serve(adapter: Path | None, settings: VllmSettings) -> Path | None:
    """The model an adapter belongs to, when adapters are to be delivered and it is still there."""
    if adapter is None or settings.lora_rank is None or "lora" not in settings.delivery:
        return None
    return base_of_adapter(adapter)


def base_of_adapter(adapter: Path) -> Path | None:
    """Directory of the model that an adapter belongs to; None when it is there no more."""
    base = Path(read_base(adapter / "base.json").path)
    return base if (base / "config.json").is_file() else None


def reply_stop_ids(model: Path, template_options: Mapping[str, Any] | None = None) -> tuple[int, ...]:
    """Tokens that end a reply, from the model's files and the chat template alone."""
    held = {name: SimpleNamespace(**_json(model / f"{name}.json")) for name in ("generation_config", "config")}
    return tuple(stop_ids(ChatTemplate(load_tokenizer(model), template_options), SimpleNamespace(**held)))


def dtype_of(model: Path, settings: VllmSettings) -> str:
    """The precision that weights are served in: as asked, else as they are stored.

    vLLM's own "auto" would round float32 to half precision, and the trainer's log-probs would not be the sampler's.
    """
    if settings.dtype != "auto":
        return settings.dtype
    configuration = _json(model / "config.json")
    stored = str(configuration.get("dtype") or configuration.get("torch_dtype") or "float32").removeprefix("torch.")
    return stored if stored in PRECISIONS else "float32"


def _json(file: Path) -> dict[str, Any]:
    return read_object(file) if file.is_file() else {}
