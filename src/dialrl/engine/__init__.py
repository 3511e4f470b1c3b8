"""Engines: who produces tokens. ``open_engine`` opens one by name; the protocol is in ``dialrl.engine.base``.

Built in: ``hf``, ``vllm``, and ``openai`` for a policy behind an endpoint. Installed packages add their own through the
entry points ``dialrl.engines``: a callable that takes a policy and ``EngineOptions``. Nothing heavy is imported before
an engine is opened.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dialrl import plugins
from dialrl.config import nearest
from dialrl.endpoint.settings import EndpointSettings, endpoint_for
from dialrl.engine.base import Engine
from dialrl.errors import UsageError, missing_extra

BUILT_IN = ("hf", "openai", "vllm")


@dataclass(frozen=True)
class EngineOptions:
    """How an engine is opened; ``more`` holds options that only one engine knows (``engine_options``).

    ``template_options``: variables of the policy's chat template, which an engine needs that finds its own stop tokens
    or leaves rendering to an endpoint. ``journal_path``: the journal of an output that is continued; calls that opening
    makes and that stand in it are not made again.
    """

    device: str = "cpu"
    precision: str = "float32"
    trust_remote_code: bool = False
    more: Mapping[str, Any] = field(default_factory=dict)
    endpoints: Mapping[str, EndpointSettings] = field(default_factory=dict)
    template_options: Mapping[str, Any] = field(default_factory=dict)
    journal_path: Path | None = None


EngineFactory = Callable[[str | Path, EngineOptions], Engine]


def open_engine(name: str, policy: str | Path, options: EngineOptions | None = None) -> Engine:
    """The engine ``name`` for a policy. Raises UsageError naming the nearest known engine."""
    return engine_factory(name)(policy, options or EngineOptions())


def engine_factory(name: str) -> EngineFactory:
    """The callable that opens the engine ``name``."""
    if name == "hf":
        return _open_hf
    if name == "openai":
        return _open_openai
    if name == "vllm":
        return _open_vllm
    try:
        factory: EngineFactory = plugins.load("engines", name, built_in=BUILT_IN)
    except KeyError:
        known = [*BUILT_IN, *plugins.installed_names("engines", built_in=BUILT_IN)]
        raise UsageError(f"There is no engine '{name}'; known are {', '.join(known)}.{nearest(name, known)}") from None
    return factory


def _open_hf(policy: str | Path, options: EngineOptions) -> Engine:
    try:
        from dialrl.engine.hf import HfEngine
    except ModuleNotFoundError as error:
        raise missing_extra("train", error.name or "torch") from error
    from dialrl.model.loading import LoadingSettings

    settings = LoadingSettings(
        device=options.device,
        precision=options.precision,  # type: ignore[arg-type]  # checked where it is used
        trust_remote_code=options.trust_remote_code,
    )
    return HfEngine.open(policy, settings, options.template_options)


def _open_openai(policy: str | Path, options: EngineOptions) -> Engine:
    from dialrl.engine.openai import OpenAIEngine, engine_settings, served_digest, with_template_options
    from dialrl.engine.openai_probe import probe_endpoint

    settings, mode = engine_settings(options.more, policy)
    probe = None
    if mode == "auto":
        probe = probe_endpoint(settings, endpoint_for(options.endpoints, "policy"), options.journal_path)
        mode = "ids" if probe.gives_token_ids else "chat"
    if mode == "chat":
        settings = with_template_options(settings, options.template_options)
    digest = served_digest(policy, settings.model)
    return OpenAIEngine(settings, "ids" if mode == "ids" else "chat", digest, None if probe is None else probe.note)


def _open_vllm(policy: str | Path, options: EngineOptions) -> Engine:
    from dialrl.engine.vllm import open_vllm
    from dialrl.engine.vllm_settings import vllm_settings

    endpoint = options.endpoints.get("policy")
    return open_vllm(
        policy,
        vllm_settings(options.more),
        device=options.device,
        endpoint=endpoint,
        template_options=options.template_options,
    )
