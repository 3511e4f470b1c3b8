"""Where a role's model is reached and what it costs (operational), and which model is asked how (semantic).

Keys are never settings: ``api_key_env`` names the environment variable that holds one. Not here: any call.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import field_validator

from dialrl.config import StageConfig, operational, semantic
from dialrl.endpoint.served import HF_SCHEME, OWN_SERVER_KEY, SCHEME, is_own, resolved
from dialrl.errors import UsageError

DEFAULT_ROLE = "default"
_URL_VARIABLE, _KEY_VARIABLE = "OPENAI_BASE_URL", "OPENAI_API_KEY"


class EndpointSettings(StageConfig):
    """One endpoint, or several that serve the same model; nothing here changes an answer."""

    base_urls: list[str] = operational(
        [],
        help="Addresses up to /v1, or vllm:policy, vllm:DIRECTORY, hf:DIRECTORY; none: the variable OPENAI_BASE_URL.",
    )
    api_key_env: str = operational(_KEY_VARIABLE, help="Environment variable with the key; unset: no key is sent.")
    concurrency: int = operational(64, help="Calls in flight at once.", ge=1)
    requests_per_minute: float | None = operational(None, help="Rate limit; none: no limit.", gt=0)
    tokens_per_minute: float | None = operational(None, help="Rate limit (estimated tokens); none: no limit.", gt=0)
    timeout_seconds: float = operational(60.0, help="Time limit of one try.", gt=0)
    attempts: int = operational(6, help="Tries of one call before it has failed.", ge=1)
    backoff_seconds: float = operational(0.5, help="Longest wait before the second try; doubles with each.", gt=0)
    longest_wait_seconds: float = operational(30.0, help="Longest wait between tries, Retry-After included.", gt=0)
    server: dict[str, Any] = operational({}, help="Options of the vLLM that an address vllm:DIRECTORY starts.")
    usd_per_million_prompt_tokens: float | None = operational(None, help="Price.", ge=0)
    usd_per_million_cached_tokens: float | None = operational(None, help="Price; none: as other prompt tokens.", ge=0)
    usd_per_million_completion_tokens: float | None = operational(None, help="Price.", ge=0)

    @field_validator("base_urls", mode="before")
    @classmethod
    def _one_is_a_list(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value

    @field_validator("base_urls")
    @classmethod
    def _http_without_secrets(cls, value: list[str]) -> list[str]:
        for url in value:
            if is_own(url):
                continue
            if not url.startswith(("http://", "https://")):
                raise ValueError(
                    f"'{url}' is no address; expected http://HOST:PORT/v1, https://..., vllm:policy or hf:DIRECTORY"
                )
            if "@" in url.split("//", 1)[1].split("/", 1)[0]:
                raise ValueError("an address holds a user name or key; keys come from the environment (api_key_env)")
        return [url.rstrip("/") for url in value]

    @property
    def addresses(self) -> list[str]:
        """The base URLs; raises UsageError when there is none."""
        found = self.base_urls or [url for url in [os.environ.get(_URL_VARIABLE, "")] if url]
        if not found:
            raise UsageError(
                "No address of a language model: set endpoints.<role>.base_urls in the configuration (for example"
                f" --set endpoints.default.base_urls=http://localhost:8000/v1), or the variable {_URL_VARIABLE}."
            )
        return [resolved(url).rstrip("/") for url in found]

    @property
    def key(self) -> str | None:
        """The key, from the environment only; a server of our own asks for its own key, if any."""
        if any(url.startswith(HF_SCHEME) for url in self.base_urls):
            return None
        is_vllm = any(url.startswith(SCHEME) for url in self.base_urls)
        return os.environ.get(OWN_SERVER_KEY if is_vllm else self.api_key_env) or None

    @property
    def has_prices(self) -> bool:
        return self.usd_per_million_prompt_tokens is not None and self.usd_per_million_completion_tokens is not None


class ModelSettings(StageConfig):
    """Which model plays a role, and how it is asked."""

    model: str = semantic(help="The model's name at the endpoint.", min_length=1)
    temperature: float = semantic(1.0, help="Sampling temperature.", ge=0)
    max_tokens: int = semantic(512, help="Tokens after which an answer is cut.", ge=1)
    send_seed: bool = semantic(True, help="Send the seed; off for endpoints that refuse it.")
    max_tokens_field: str = semantic("max_tokens", help="Name of the limit in the request body.")
    extra: dict[str, Any] = semantic({}, help="Further keys of the request body.")


@dataclass(frozen=True)
class Budget:
    """What the calls of one output may cost, answers replayed after a kill included; None: no limit."""

    usd: float | None = None
    tokens: int | None = None


class CallsConfig(StageConfig):
    """The part of a stage's configuration that says where its models are and what they may cost."""

    endpoints: dict[str, EndpointSettings] = operational(
        {}, help="Where the models are, by role (policy, actor, director, judge), or default for all others."
    )
    budget_usd: float | None = operational(None, help="Stop, resumably, before the calls cost more than this.", ge=0)
    budget_tokens: int | None = operational(None, help="Stop, resumably, before the calls use more tokens.", ge=0)

    cache: bool = operational(True, help="Take a judge's answers from the cache shared between runs, and keep them.")
    cache_folder: Path | None = operational(None, help="The cache; none: DIALRL_CACHE, else the user's cache folder.")

    @property
    def budget(self) -> Budget:
        return Budget(self.budget_usd, self.budget_tokens)


def endpoint_for(endpoints: Mapping[str, EndpointSettings], role: str) -> EndpointSettings:
    """The endpoint of ``role``: its own, else the default one, else the environment's."""
    return endpoints.get(role) or endpoints.get(DEFAULT_ROLE) or EndpointSettings()
