"""A world of models for the environment support: what each role answers, by the model's name. Not a test module."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support_cards import card

Body = Mapping[str, Any]


def number(body: Body) -> int:
    """A number that follows from the request alone, so that the world answers the same question the same way."""
    return int(hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:8], 16)


def world(body: Body) -> Any:
    """Policy and actor speak, the director calls a tool it was offered, the judge grades in the schema."""
    if body["model"] == "director":
        return directed(body, number(body) % len(body["tools"]))
    if body["model"] == "judge":
        return grades(body)
    return f"{body['model']} says {number(body)}."


def directed(body: Body, place: int) -> dict[str, Any]:
    """A message that calls the tool at ``place`` with the first argument it may have."""
    function = body["tools"][place]["function"]
    properties = function["parameters"]["properties"]
    arguments = {name: kind.get("enum", ["what matters"])[0] for name, kind in properties.items()}
    call = {"function": {"name": function["name"], "arguments": json.dumps(arguments)}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def grades(body: Body) -> str:
    schema = body["response_format"]["json_schema"]["schema"]["properties"]
    known = {name: part["properties"]["level"]["enum"] for name, part in schema.items()}
    chosen = {name: levels[number(body) % len(levels)] for name, levels in known.items()}
    return json.dumps({name: {"evidence": "e", "reasoning": "r", "level": level} for name, level in chosen.items()})


def write_cards(folder: Path, count: int) -> Path:
    """``count`` training cards as files."""
    folder.mkdir(parents=True, exist_ok=True)
    for place in range(count):
        values = card(f"card-{place:02d}", trigger=f"it happened, number {place}")
        (folder / f"{place:02d}.json").write_text(json.dumps(values), encoding="utf-8")
    return folder


def pipeline(cards: Path, url: str, **endpoint: Any) -> dict[str, Any]:
    """Values of a rollout section: every role its own model, at one address."""
    reached = {"base_urls": [url], "timeout_seconds": 0.5, "backoff_seconds": 0.01, "attempts": 8, **endpoint}
    return {
        "environment": "support",
        "environment_options": {
            "cards": str(cards), "actor": {"model": "actor"}, "director": {"model": "director"},
        },
        "judge": "rubric",
        "judge_options": {"model": "judge"},
        "engine": "openai",
        "engine_options": {"model": "policy", "mode": "chat"},
        "endpoints": {"default": reached},
        "cache": False,
    }  # fmt: skip
