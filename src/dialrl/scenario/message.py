"""A message of a dialogue: the one shape in which environment, judge, template and file exchange text."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Role = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True)
class Message:
    """``role`` is the chat template's role; ``name`` a speaker or tool name, None where there is none."""

    role: Role
    content: str
    name: str | None = None

    def to_row(self) -> dict[str, str | None]:
        """The struct stored in the trajectory columns ``messages`` and ``final_messages``."""
        return {"role": self.role, "name": self.name, "content": self.content}

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> "Message":
        return cls(role=row["role"], content=row["content"], name=row.get("name"))


@dataclass(frozen=True)
class Usage:
    """Tokens of one model call, and the role it was made for."""

    role: str
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
