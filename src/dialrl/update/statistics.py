"""Figures of one optimiser step, summed over its forward passes, and of one file, over its optimiser steps."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch

from dialrl.model.distributed import Processes, largest, summed


@dataclass
class StepSums:
    """Sums over the trained tokens of one optimiser step; ``figures`` turns them into means."""

    tokens: int = 0
    read_tokens: int = 0
    loss: float = 0.0
    ratio: float = 0.0
    ratio_max: float = 0.0
    clipped: int = 0
    entropy: float = 0.0
    divergence_old_new: float = 0.0
    divergence_reference: float | None = None
    mismatch: float = 0.0
    mismatch_max: float = 0.0
    mismatch_tokens: int = 0

    def add_mismatch(self, trainer_T: torch.Tensor, sampler_T: torch.Tensor) -> None:
        """|log pi_trainer - log pi_sampler| of tokens (T,) both knew before the step."""
        difference = (trainer_T - sampler_T).abs()
        self.mismatch += float(difference.sum())
        self.mismatch_max = max(self.mismatch_max, float(difference.max()) if len(difference) else 0.0)
        self.mismatch_tokens += len(difference)

    @property
    def mismatch_mean(self) -> float | None:
        return self.mismatch / self.mismatch_tokens if self.mismatch_tokens else None

    def over(self, group: Processes) -> "StepSums":
        """These sums over all processes of ``group``."""
        if group.count == 1:
            return self
        mine = asdict(self)
        sums = [name for name in mine if name not in ("ratio_max", "mismatch_max") and mine[name] is not None]
        pairs = zip(sums, summed([mine[name] for name in sums], group), strict=True)
        totals: dict[str, Any] = {name: int(total) if isinstance(mine[name], int) else total for name, total in pairs}
        ratio_max, mismatch_max = largest([self.ratio_max, self.mismatch_max], group)
        return replace(self, **totals, ratio_max=ratio_max, mismatch_max=mismatch_max)

    def figures(self) -> dict[str, Any]:
        """Means and maxima by the names used in ``metrics.jsonl``."""
        count = max(1, self.tokens)
        figures: dict[str, Any] = {
            "loss": self.loss,
            "ratio_mean": self.ratio / count,
            "ratio_max": self.ratio_max,
            "clipped_share": self.clipped / count,
            "entropy": self.entropy / count,
            "kl_old_new": self.divergence_old_new / count,
            "mismatch_mean": self.mismatch_mean,
            "mismatch_max": self.mismatch_max if self.mismatch_tokens else None,
            "trained_tokens": self.tokens,
            "read_tokens": self.read_tokens,
        }
        if self.divergence_reference is not None:
            figures["kl_reference"] = self.divergence_reference / count
        return figures


@dataclass(frozen=True)
class FileMetrics:
    """What training on one file did: one mapping an optimiser step, counts, and warnings a user should read.

    ``rows`` empty: no optimiser step was made, and ``no_signal`` is the sentence that says why. ``overall``: figures of
    the file that are no means over its steps.
    """

    rows: Sequence[Mapping[str, Any]] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    spreads: Mapping[str, float | int] = field(default_factory=dict)
    overall: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    no_signal: str | None = None

    def figures(self) -> dict[str, Any]:
        """Over the file: means weighted by trained tokens, maxima, and the spread of the pools."""
        if not self.rows:
            return {"learning_signal": False, **self.spreads}
        names = dict.fromkeys(name for row in self.rows for name, value in row.items() if isinstance(value, float))
        figures: dict[str, Any] = {name: self._combined(name) for name in names if name not in self.spreads}
        tokens = sum(row["trained_tokens"] for row in self.rows)
        seconds = sum(row["seconds"] for row in self.rows)
        figures |= {"trained_tokens": tokens, "seconds": seconds, "tokens_per_second": tokens / max(seconds, 1e-9)}
        return {"learning_signal": True, **figures, **self.spreads, **self.overall}

    def _combined(self, name: str) -> float | None:
        known = [(row[name], row["trained_tokens"]) for row in self.rows if row.get(name) is not None]
        if not known:
            return None
        if name.endswith("_max"):
            return float(max(value for value, _ in known))
        return float(sum(value * tokens for value, tokens in known) / max(1, sum(tokens for _, tokens in known)))
