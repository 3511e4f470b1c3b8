"""Answers to questions as they are stored: JSON lines of id and answer, or the dialogues of the environment search.

Not here: scores (``qa``).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dialrl.environment.search.grammar import Answer, read_reply
from dialrl.errors import InputError, MissingInputError
from dialrl.scenario.questions import Question, load_questions
from dialrl.trajectory.importers.json_lines import parse_line
from dialrl.trajectory.reader import TrajectoryFile
from dialrl.trajectory.rows import table_to_dialogues

_KEYS = ("answer", "prediction", "pred", "response")
_DIALOGUE = ("scenario_id", "reply", "end_reason")


@dataclass(frozen=True)
class StoredAnswer:
    """``text`` is None where no answer was given (a dialogue that ended otherwise, a null)."""

    id: str
    text: str | None


def load_answers(path: Path) -> list[StoredAnswer]:
    """Answers of a file; several to one question are several tries. Raises InputError naming file and line."""
    if not path.exists():
        raise MissingInputError(f"Answers '{path}' do not exist. Give JSON lines of id and answer, or dialogues.")
    if path.is_dir() or path.suffix == ".parquet":
        return _from_dialogues(path)
    answers = []
    with path.open("rb") as handle:
        for number, line in enumerate(handle, start=1):
            if line.strip():
                answers.append(_from_line(parse_line(line, path, number), f"'{path}', line {number}"))
    if not answers:
        raise InputError(f"'{path}' holds no answers.")
    return answers


def _from_line(value: dict[str, object], place: str) -> StoredAnswer:
    key = next((name for name in _KEYS if name in value), None)
    text = None if key is None else value[key]
    identity = value.get("id")
    if isinstance(identity, bool) or not isinstance(identity, (str, int)) or key is None:
        raise InputError(f"{place} is no answer: expected the keys id and answer.")
    if text is not None and not isinstance(text, str):
        raise InputError(f"{place}: the answer is {text!r:.80}; expected a text, or null for none.")
    return StoredAnswer(str(identity), text)


def _from_dialogues(path: Path) -> list[StoredAnswer]:
    source = TrajectoryFile.open(path, needs=_DIALOGUE)
    answers = []
    for table in source.groups(["group_id", "sample", "turn", *_DIALOGUE]):
        for rows in table_to_dialogues(table):
            read = read_reply(rows[-1]["reply"] or "", max_queries=1)
            given = rows[-1]["end_reason"] == "answer" and isinstance(read, Answer)
            answers.append(StoredAnswer(rows[-1]["scenario_id"], read.text if given else None))  # type: ignore[union-attr]
    return answers


def refuse_seen(questions: Sequence[Question], training: Sequence[Path]) -> int:
    """Number of ids in ``training`` (questions, or dialogues). Raises InputError when one of them is evaluated on."""
    asked = {question.id for question in questions}
    seen_ids: set[str] = set()
    for path in training:
        seen = _ids(path)
        both = sorted(asked & seen)
        if both:
            raise InputError(
                f"{len(both)} of {len(asked)} questions were seen in training ('{path}'), the first is '{both[0]}'."
                " Evaluate on others: a score on questions trained on says nothing about new ones."
            )
        seen_ids |= seen
    return len(seen_ids)


def _ids(path: Path) -> set[str]:
    if path.is_dir() or (path.suffix == ".parquet" and _holds_dialogues(path)):
        source = TrajectoryFile.open(path, needs=["scenario_id"])
        return {name for table in source.groups(["scenario_id"]) for name in table["scenario_id"].to_pylist() if name}
    return {question.id for question in load_questions(path)}


def _holds_dialogues(path: Path) -> bool:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return "group_id" in pq.read_schema(path).names
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(f"'{path}' is no Parquet file ({str(error).splitlines()[0]}).") from None
