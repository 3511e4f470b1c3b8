"""Settings of an evaluation that runs a model itself: which engine, how answers are drawn. Not here: any benchmark."""

from collections.abc import Mapping
from typing import Any

from dialrl.config import operational, semantic
from dialrl.endpoint.settings import DEFAULT_ROLE, CallsConfig, EndpointSettings

CHAT = "openai"


class AskingConfig(CallsConfig):
    """``engine`` None: nothing is run, what is stored is scored."""

    engine: str | None = semantic(
        None, help="Run --model on this engine: openai, hf, or an installed one; none: score what is stored."
    )
    engine_options: dict[str, Any] = semantic({}, help="Options of the engine.")
    template_options: dict[str, Any] = semantic({}, help="Variables of the model's chat template.")
    temperature: float | None = semantic(
        None, ge=0, help="Sampling temperature; none: as the benchmark has it (see its page)."
    )
    top_p: float = semantic(1.0, gt=0, le=1, help="Nucleus sampling.")
    max_reply_tokens: int = semantic(1024, ge=1, help="Tokens after which an answer is cut.")
    sampling_seed: int = semantic(0, ge=0, help="Seed of the answers.")
    prompts: str | None = semantic(None, help="Folder with prompts of your own, which replace ours one by one.")
    base_url: str | None = operational(
        None, help="Address of the models, up to and with /v1: short for endpoints.default.base_urls."
    )
    concurrency: int = operational(64, ge=1, help="Items asked side by side.")
    block_dialogues: int = semantic(64, ge=1, help="Items that a block engine works on together.")
    call_timeout_seconds: float = operational(120.0, gt=0, help="Time limit of one answer of a simulator or judge.")
    max_failed: float = operational(
        0.1, ge=0, le=1, help="Share of items without an answer above which the command exits with 1."
    )
    device: str = operational("cpu", help="Where the embedded engine runs: cpu, cuda.")

    @property
    def reached(self) -> dict[str, EndpointSettings]:
        """The endpoints, with ``base_url`` as the default one's."""
        return with_address(self.endpoints, self.base_url)


def with_address(endpoints: Mapping[str, EndpointSettings], base_url: str | None) -> dict[str, EndpointSettings]:
    """``endpoints`` with ``base_url`` as the address of the default one; roles of their own keep theirs."""
    if base_url is None:
        return dict(endpoints)
    default = endpoints.get(DEFAULT_ROLE, EndpointSettings())
    return {**endpoints, DEFAULT_ROLE: default.updated(base_urls=[base_url])}


def text_options(engine: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of an engine that is asked for text: an endpoint gets messages unless told otherwise."""
    return {"mode": "chat", **options} if engine == CHAT else dict(options)
