"""One finding of the doctor: what was looked at, how it stands, and what to do about it. Loads nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Status = Literal["ok", "warning", "failed", "not applicable"]


@dataclass(frozen=True)
class Check:
    """``failed``: something that was asked for, or that the named pipeline needs, does not work.

    What nobody asked for is ``not applicable`` where it is absent, never failed. ``advice`` says what to do;
    ``details`` are further JSON values (counts, digests, tokens) for ``--json`` and for views.
    """

    area: str
    name: str
    status: Status
    found: str
    advice: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Diagnosis:
    """All findings, in the order in which they were made."""

    checks: tuple[Check, ...]

    @property
    def failed(self) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if check.status == "failed")

    @property
    def counts(self) -> dict[str, int]:
        """Checks by status; every status is there."""
        statuses: Sequence[Status] = ("ok", "warning", "failed", "not applicable")
        return {status: sum(check.status == status for check in self.checks) for status in statuses}

    def to_json(self) -> dict[str, Any]:
        """One JSON object; ``ready``: nothing that is needed failed."""
        return {
            "command": "doctor",
            "ready": not self.failed,
            "counts": self.counts,
            "checks": [asdict(check) for check in self.checks],
        }


def absent(*, needed: bool) -> Status:
    """The status of something that is not there."""
    return "failed" if needed else "not applicable"
