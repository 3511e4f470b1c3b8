"""The world's two files, as they ship: ``questions.jsonl`` and ``passages.jsonl``. A test makes them anew."""

import json
from pathlib import Path

from dialrl.environment.search.world.facts import make_facts
from dialrl.environment.search.world.texts import passages, world_questions
from dialrl.trajectory.atomic import write_text

QUESTIONS, PASSAGES = "search-world/questions.jsonl", "search-world/passages.jsonl"


def questions_text() -> str:
    """The questions, one object a line."""
    return _lines([asked.question.to_json() for asked in world_questions(make_facts())])


def passages_text() -> str:
    """The passages, one object a line."""
    return _lines([vars(passage) for passage in passages(make_facts())])


def write_world(folder: Path) -> None:
    """Write both files into ``folder``."""
    write_text(folder / Path(QUESTIONS).name, questions_text())
    write_text(folder / Path(PASSAGES).name, passages_text())


def _lines(values: list[dict[str, object]]) -> str:
    return "".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values)
