"""Questions with accepted answers: one form, read from JSON lines or Parquet in the shapes that are widely used.

Not here: passages, environments, scores.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dialrl.errors import InputError, MissingInputError
from dialrl.trajectory.importers.json_lines import parse_line

ANSWER_SEPARATOR = "<|answer_split|>"
Json = Mapping[str, Any]

# Where a value may stand, first found; a dot reaches into an object.
_ID = ("id", "extra_info.index", "qid", "_id", "question_id")
_QUESTION = ("question", "prompt", "query")
_ANSWERS = ("answers", "golden_answers", "answer", "reward_model.ground_truth", "ground_truth")
_SOURCE = ("source", "data_source", "dataset")
_SPLIT = ("split", "extra_info.split")


@dataclass(frozen=True)
class Question:
    """``answers``: every accepted one, in order. ``source``: the data set; ``split``: train, test, or the set's own."""

    id: str
    question: str
    answers: tuple[str, ...]
    source: str = ""
    split: str = "test"

    def to_json(self) -> dict[str, Any]:
        """The form ``dialrl import qa`` writes, one object a line."""
        return {**vars(self), "answers": list(self.answers)}


def load_questions(path: Path) -> list[Question]:
    """Questions of a file (``.parquet``, else JSON lines), in order, each id once.

    Accepted keys: id, ``extra_info.index``; question, or ``prompt`` (text, or chat messages: the last user's); answers,
    ``golden_answers``, ``reward_model.ground_truth`` (a list, or one text split at ``<|answer_split|>``); source or
    ``data_source``; split. A question without answers is kept with none. Raises InputError naming file and row.
    """
    questions, seen = list[Question](), dict[str, str]()
    for place, row in _rows(path):
        question = _question(row, place)
        if question.id in seen:
            raise InputError(
                f"{place}: id '{question.id}' stands at {seen[question.id]} already; expected each id once."
            )
        seen[question.id] = place
        questions.append(question)
    if not questions:
        raise InputError(f"'{path}' holds no questions.")
    return questions


def _rows(path: Path) -> Iterator[tuple[str, Json]]:
    if not path.is_file():
        raise MissingInputError(f"'{path}' does not exist. Give a file of questions: Parquet, or JSON lines.")
    if path.suffix == ".parquet":
        yield from _parquet_rows(path)
        return
    with path.open("rb") as handle:
        for number, line in enumerate(handle, start=1):
            if line.strip():
                yield f"'{path}', line {number}", parse_line(line, path, number)


def _parquet_rows(path: Path) -> Iterator[tuple[str, Json]]:
    try:
        rows = pq.read_table(path).to_pylist()
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(f"'{path}' is no Parquet file ({str(error).splitlines()[0]}).") from None
    for number, row in enumerate(rows):
        yield f"'{path}', row {number}", row


def _question(row: Json, place: str) -> Question:
    identity = _first(row, _ID)
    if not isinstance(identity, (str, int)) or isinstance(identity, bool) or str(identity) == "":
        raise InputError(f"{place} has no id; expected one of the keys {', '.join(_ID)}: a text or a whole number.")
    return Question(
        str(identity),
        _text(_first(row, _QUESTION), place),
        _answers(_first(row, _ANSWERS), place),
        str(_first(row, _SOURCE) or ""),
        str(_first(row, _SPLIT) or "test"),
    )


def _first(row: Json, names: Sequence[str]) -> Any:
    for name in names:
        value: Any = row
        for part in name.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        if value is not None:
            return value
    return None


def _text(value: Any, place: str) -> str:
    """A text, or the last user message of a chat."""
    if isinstance(value, list):
        said = [m.get("content") for m in value if isinstance(m, Mapping) and m.get("role") == "user"]
        value = said[-1] if said else None
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"{place} has no question; expected one of the keys {', '.join(_QUESTION)} with a text.")
    return value


def _answers(value: Any, place: str) -> tuple[str, ...]:
    """A list of texts, an object with such a list under ``target``, or one text with separators; none is no answer."""
    if isinstance(value, Mapping):
        value = value.get("target")
    found = value.split(ANSWER_SEPARATOR) if isinstance(value, str) else [] if value is None else value
    if not isinstance(found, (list, tuple)) or not all(isinstance(answer, str) for answer in found):
        raise InputError(f"{place}: the answers are {value!r:.80}; expected a list of texts, or one text.")
    return tuple(answer for answer in found if answer.strip())
