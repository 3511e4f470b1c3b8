"""Models behind a server on the loopback interface, for evaluations that ask. Not a test module."""

from collections.abc import Callable
from typing import Any

from tests.model_server import ModelServer

from dialrl.evaluate.respondent import open_respondent_policy
from dialrl.rollout.stage import Policy

QUICK_ENDPOINT = {"timeout_seconds": 30.0, "backoff_seconds": 0.01, "attempts": 2}


def settings(server: ModelServer, **options: Any) -> dict[str, Any]:
    """Configuration values that reach ``server`` without patience."""
    reached = {"default": {"base_urls": [server.url], **QUICK_ENDPOINT}}
    return {"engine": "openai", "endpoints": reached, "resamples": 50, "cache": False, **options}


def served(config: Any, name: str = "served") -> Policy:
    """The policy ``name`` at the endpoint of ``config``."""
    return open_respondent_policy(name, config)


def prompt_of(body: dict[str, Any]) -> str:
    """The last message of a request."""
    return str(body["messages"][-1]["content"])


def asked_prompts(server: ModelServer, holds: Callable[[str], bool] = lambda text: True) -> list[str]:
    return [prompt for body in server.requests if holds(prompt := prompt_of(body))]
