"""What the calls cost: calls, tries, tokens and money by role, and the budget that they may not exceed.

A call is let through only if what was spent, what is in flight, and the most it can cost together stay within the
budget. Tokens that are not known yet are estimated: a third of the request's bytes, plus the limit of the answer.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

from dialrl.endpoint.failure import BudgetError
from dialrl.endpoint.settings import Budget, EndpointSettings
from dialrl.scenario.message import Usage

_BYTES_PER_TOKEN = 3
_MILLION = 1_000_000


def estimated_usage(role: str, body: Mapping[str, Any], limit: int) -> Usage:
    """The most a request is expected to use."""
    prompt = len(json.dumps(body, ensure_ascii=False).encode("utf-8", "surrogatepass")) // _BYTES_PER_TOKEN + 1
    return Usage(role, prompt, 0, limit)


def usage_of(role: str, answer: Mapping[str, Any], estimate: Usage) -> Usage:
    """The usage an answer reports; the estimate where it reports none."""
    usage = answer.get("usage")
    if not isinstance(usage, Mapping) or not isinstance(usage.get("prompt_tokens"), int):
        return estimate
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, Mapping) else 0
    return Usage(role, usage["prompt_tokens"], int(cached or 0), int(usage.get("completion_tokens") or 0))


def cost_usd(usage: Usage, endpoint: EndpointSettings) -> float:
    """Price of a call. Example: 1,000 prompt tokens, 400 of them cached, and 100 of completion at 2, 1 and 8 USD a
    million cost 0.0012 + 0.0004 + 0.0008 = 0.0024."""
    prompt = endpoint.usd_per_million_prompt_tokens or 0.0
    cached = endpoint.usd_per_million_cached_tokens
    completion = endpoint.usd_per_million_completion_tokens or 0.0
    fresh = usage.prompt_tokens - usage.cached_tokens
    paid = fresh * prompt + usage.cached_tokens * (prompt if cached is None else cached)
    return (paid + usage.completion_tokens * completion) / _MILLION


class Ledger:
    """Counts of one stage's calls. Replayed calls count towards the budget: they were paid for this output."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self.roles: dict[str, Counter[str]] = defaultdict(Counter)
        self.usd: dict[str, float] = defaultdict(float)
        self._reserved_tokens, self._reserved_usd = 0, 0.0

    @property
    def spent_tokens(self) -> int:
        return sum(counts["prompt_tokens"] + counts["completion_tokens"] for counts in self.roles.values())

    @property
    def spent_usd(self) -> float:
        return sum(self.usd.values())

    def reserve(self, estimate: Usage, endpoint: EndpointSettings) -> None:
        """Let a call through. Raises BudgetError when it could exceed the budget."""
        tokens, usd = estimate.prompt_tokens + estimate.completion_tokens, cost_usd(estimate, endpoint)
        self._check("tokens", self.spent_tokens, self._reserved_tokens + tokens, self._budget.tokens)
        self._check("usd", self.spent_usd, self._reserved_usd + usd, self._budget.usd)
        self._reserved_tokens += tokens
        self._reserved_usd += usd

    def release(self, estimate: Usage, endpoint: EndpointSettings) -> None:
        """The call has ended, one way or the other."""
        self._reserved_tokens -= estimate.prompt_tokens + estimate.completion_tokens
        self._reserved_usd -= cost_usd(estimate, endpoint)

    def count(self, role: str, what: str, times: int = 1) -> None:
        self.roles[role][what] += times

    def spend(self, usage: Usage, endpoint: EndpointSettings) -> None:
        """Book an answer."""
        self.roles[usage.role].update(
            prompt_tokens=usage.prompt_tokens,
            cached_tokens=usage.cached_tokens,
            completion_tokens=usage.completion_tokens,
        )
        self.usd[usage.role] += cost_usd(usage, endpoint)

    def figures(self) -> dict[str, Any]:
        """By role: calls, replayed, tries, failures, tokens, and usd where prices are known."""
        return {
            role: {**dict(sorted(counts.items())), **({"usd": round(self.usd[role], 6)} if self.usd[role] else {})}
            for role, counts in sorted(self.roles.items())
        }

    def _check(self, unit: str, spent: float, wanted: float, limit: float | None) -> None:
        if limit is not None and spent + wanted > limit:
            raise BudgetError(
                f"The budget of {limit:g} {unit} does not cover the next call: {spent:g} spent, {wanted:g} wanted by it"
                f" and those in flight. What is finished is kept: go on with --resume and a larger --budget-{unit}."
            )
