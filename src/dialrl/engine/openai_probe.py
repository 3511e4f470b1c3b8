"""What a policy's endpoint gives, ids with log-probs or text: asked once, for one token.

The answer decides how the whole rollout talks to the endpoint, so it is a call like any other: it stands in the journal
beside the output, a resumed rollout takes it from there, and the tokens are booked. It is asked before there is an
output to journal beside; so the engine hands it to the calls of the first stage that uses it (``Probe.note``).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dialrl.concurrency import run_async
from dialrl.endpoint.calls import ModelCalls
from dialrl.endpoint.failure import EndpointError, ModelCallError
from dialrl.endpoint.journal import Journal, call_key
from dialrl.endpoint.settings import EndpointSettings, ModelSettings
from dialrl.engine.base import SamplingSettings
from dialrl.engine.openai import COMPLETIONS, ROLE, completion_body, read_completion

_SEED, _LIMIT = 0, 1


@dataclass(frozen=True)
class Probe:
    """The question ``body`` and what came of it, as a journal entry."""

    gives_token_ids: bool
    body: Mapping[str, Any]
    entry: Mapping[str, Any]

    def note(self, calls: ModelCalls) -> None:
        """Put it into the journal and the books of ``calls``."""
        calls.adopt(ROLE, self.body, self.entry, seed=_SEED, limit=_LIMIT)


def probe_endpoint(settings: ModelSettings, endpoint: EndpointSettings, journal_path: Path | None = None) -> Probe:
    """Ask ``endpoint``, unless the journal of the output that is continued holds the answer."""
    body = completion_body(settings, [1], SamplingSettings(temperature=0.0), _LIMIT)
    held = Journal(journal_path).get(call_key(ROLE, body, _SEED, 0)) if journal_path is not None else None
    entry = run_async(_asked(endpoint, body)) if held is None else held
    return Probe(_has_ids(entry), body, entry)


async def _asked(endpoint: EndpointSettings, body: Mapping[str, Any]) -> dict[str, Any]:
    # Patience is for the rollout; here one answer tells.
    async with ModelCalls({ROLE: endpoint.updated(attempts=2)}) as calls:
        try:
            return {"role": ROLE, "answer": await calls.post(ROLE, COMPLETIONS, body, seed=_SEED, limit=_LIMIT)}
        except ModelCallError as error:
            return {"role": ROLE, "failed": error.reason, "detail": str(error)}
        except EndpointError as error:
            return {"role": ROLE, "failed": "endpoint", "detail": str(error)}


def _has_ids(entry: Mapping[str, Any]) -> bool:
    try:
        read_completion(entry.get("answer", {}), prompt_tokens=1)
    except ModelCallError:
        return False
    return True


def gives_token_ids(settings: ModelSettings, endpoint: EndpointSettings) -> bool:
    """Whether the endpoint answers one token with its id and log-prob."""
    return probe_endpoint(settings, endpoint).gives_token_ids
