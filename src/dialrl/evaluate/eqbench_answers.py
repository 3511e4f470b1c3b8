"""What a model said to EQ-Bench's questions: as it came, as answers, and as columns of results. Not here: asking."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from dialrl.errors import InputError
from dialrl.evaluate.eqbench_data import Iteration, Question, iteration_of
from dialrl.evaluate.reply import Reply

# Null for stored answers.
ASKED_COLUMNS = [
    ("answer", pa.string()),
    ("finish_reason", pa.string()),
    ("tries", pa.int64()),
    ("error", pa.string()),
]


@dataclass(frozen=True)
class Raw:
    """What a model said to one question in the last of so many ``tries``; ``answer`` is None where all calls failed."""

    answer: str | None
    finish_reason: str
    tries: int
    error: str | None = None

    @property
    def said(self) -> str:
        """The answer without thoughts."""
        return Reply(self.answer, self.finish_reason).said


@dataclass(frozen=True)
class Answers:
    """One iteration, and what it was read from where a model was asked."""

    iteration: Iteration
    raw: Mapping[str, Raw] = field(default_factory=dict)

    @classmethod
    def of_raw(cls, name: str, raw: Mapping[str, Raw], *, revision: bool) -> "Answers":
        texts = {key: one.said for key, one in raw.items() if one.answer is not None}
        return cls(iteration_of(name, texts, revision=revision), raw)


def asked_values(raw: Raw | None) -> dict[str, Any]:
    """The columns of ASKED_COLUMNS."""
    return {name: None if raw is None else getattr(raw, name) for name, _ in ASKED_COLUMNS}


def raw_by_iteration(
    rows: Sequence[Mapping[str, Any]], questions: Mapping[str, Question], place: Path
) -> dict[str, dict[str, Raw]]:
    """What a model said, by iteration and question. Raises InputError for a question that is not among these."""
    found: dict[str, dict[str, Raw]] = {}
    for row in rows:
        if row["item"] not in questions:
            raise InputError(
                f"'{place}' answers question '{row['item']}', which is none of the {len(questions)} given."
            )
        raw = Raw(row["answer"], row["finish_reason"], row["tries"], row["error"])
        found.setdefault(row["iteration"], {})[row["item"]] = raw
    return found
