"""What a stage says when it is done: printed as a table for people or as one JSON object, the same figures in both."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class StageSummary:
    """Result of one stage.

    ``counts`` are whole numbers of things (dialogues, turns, degenerate pools ...), ``figures`` any other named values
    (may nest), ``warnings`` sentences a user should read. A figure never stands without the count it rests on.
    ``failure``: why the command exits with 1 once all of this is said (a gate not passed, a flag raised).
    """

    stage: str
    output: Path | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    figures: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    failure: str | None = None

    def to_json(self) -> dict[str, Any]:
        """One JSON object: figures on top level, counts and warnings under their names."""
        return {
            "stage": self.stage,
            "output": None if self.output is None else str(self.output),
            **self.figures,
            "counts": dict(self.counts),
            "warnings": list(self.warnings),
        }
