"""EQ-Bench v2's own files: questions with reference intensities, stored answers, and the text of both prompt modes.

Not here: scores (``eqbench_score``).
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dialrl.errors import InputError
from dialrl.evaluate.eqbench_score import Answer
from dialrl.evaluate.stored import Stored, read_document

EMOTIONS = 4
FIRST_PASS, REVISED = "First pass scores:", "Revised scores:"
REVISION_REQUEST = " Then critique your answer by thinking it through step by step. Finally, give your revised scores."
_INTENSITY = re.compile(r"(\w+):\s+(\d+)")
_CRITIQUE = re.compile(r"Critique:.*?\[End of answer\]\n*", re.DOTALL)
_NO_ANSWER: Answer = {}


@dataclass(frozen=True)
class Question:
    """One item: the prompt (which asks for a revision) and the full-scale reference intensity of four emotions."""

    key: str
    prompt: str
    reference: Mapping[str, float]

    def text(self, *, revision: bool) -> str:
        """The prompt of one mode: without revision it loses the request, the headings and all about the critique."""
        if revision:
            return self.prompt
        asked = self.prompt.replace(REVISION_REQUEST, "").replace(FIRST_PASS + "\n", "")
        return _CRITIQUE.sub("", asked) + "\nYour answer:\n"


@dataclass(frozen=True)
class Iteration:
    """One pass over the questions: an answer a block; a question that is absent, or an empty answer, was not parsed."""

    name: str
    first_pass: Mapping[str, Answer]
    revised: Mapping[str, Answer]


def load_questions(path: Path) -> dict[str, Question]:
    """The questions by id, in order. Raises InputError naming file, line and field."""
    stored = read_document(path, "the questions of EQ-Bench v2, an object keyed by question id")
    questions = {key: _question(stored, key) for key in stored.mapping()}
    if not questions:
        raise InputError(f"'{path}' holds no questions; expected an object keyed by question id.")
    return questions


def _question(stored: Stored, key: str) -> Question:
    place = (key, "reference_answer_fullscale")
    stored.mapping(*place)
    numbers = range(1, EMOTIONS + 1)
    names = [stored.string(*place, f"emotion{number}") for number in numbers]
    if len(set(names)) < EMOTIONS:
        raise stored.fault(place, f"names {', '.join(names)}; expected {EMOTIONS} different emotions")
    scores = [stored.number(*place, f"emotion{number}_score") for number in numbers]
    return Question(key, stored.string(key, "prompt"), dict(zip(names, scores, strict=True)))


def load_iterations(
    path: Path,
    questions: Mapping[str, Question],
    *,
    source: Literal["answers", "text"] = "answers",
    revision: bool | None = None,
) -> list[Iteration]:
    """The iterations of a stored result file. Raises InputError naming file, line and field.

    ``revision`` None: answers have the blocks that are stored; a text has two where most texts of its iteration have
    both headings. False takes the first block alone.
    """
    what = "a result file of EQ-Bench v2, with 'raw_results'"
    stored = read_document(path, what)
    names = list(stored.mapping("raw_results"))
    if not names:
        raise stored.fault(("raw_results",), "holds no iteration")
    read = _from_answers if source == "answers" else _from_text
    return [read(stored, name, questions, revision) for name in sorted(names, key=_in_order)]


def _from_answers(stored: Stored, name: str, questions: Mapping[str, Question], revision: bool | None) -> Iteration:
    place = ("raw_results", name, "respondent_answers")
    first, second = {}, {}
    for key in _known_keys(stored, place, questions):
        _check_blocks(stored, (*place, key))
        first[key] = _intensities(stored, (*place, key, "first_pass"))
        second[key] = _NO_ANSWER if revision is False else _intensities(stored, (*place, key, "revised"))
    return Iteration(name, first, second)


def _check_blocks(stored: Stored, place: tuple[str, ...]) -> None:
    """An answer has a first pass and may have a revised block; a misspelt one must not read as no answer."""
    blocks = stored.mapping(*place)
    unknown = next((name for name in blocks if name not in ("first_pass", "revised")), None)
    if unknown is not None or "first_pass" not in blocks:
        raise stored.fault((*place, unknown or "first_pass"), "expected the blocks first_pass and revised")


def _intensities(stored: Stored, place: tuple[str, ...]) -> Answer:
    """Emotion to intensity; an absent block is one without answers."""
    if not stored.has(*place):
        return _NO_ANSWER
    return {emotion: stored.number(*place, emotion) for emotion in stored.mapping(*place)}


def _from_text(stored: Stored, name: str, questions: Mapping[str, Question], revision: bool | None) -> Iteration:
    place = ("raw_results", name, "raw_inference")
    texts = {key: stored.string(*place, key) for key in _known_keys(stored, place, questions)}
    return iteration_of(name, texts, revision=revision)


def iteration_of(name: str, texts: Mapping[str, str], *, revision: bool | None) -> Iteration:
    """An iteration of whole texts; ``revision`` None: two blocks where most texts have both headings."""
    both = sum(FIRST_PASS in text and REVISED in text for text in texts.values())
    two_blocks = 2 * both > len(texts) if revision is None else revision
    parsed = {key: parse_answer(text, revision=two_blocks) for key, text in texts.items()}
    return Iteration(name, {k: first for k, (first, _) in parsed.items()}, {k: last for k, (_, last) in parsed.items()})


def parse_answer(text: str, *, revision: bool) -> tuple[Answer, Answer]:
    """The intensities in a text, as (first pass, revised): ``word: digits``, the last of a repeated word wins.

    With revision the first pass stands between the two headings, which are exact, and the revised block after the
    second; without, the whole text is one block. What is absent is empty.
    Example: "Calm: 3\\nAngry: 8" without revision -> ({"Calm": 3, "Angry": 8}, {}).
    """
    if not revision:
        return _found(text), _NO_ANSWER
    before, heading, after = text.partition(REVISED)
    if not heading:
        return _NO_ANSWER, _NO_ANSWER
    return _found(before.partition(FIRST_PASS)[2]), _found(after)


def _found(text: str) -> Answer:
    return {emotion: float(intensity) for emotion, intensity in _INTENSITY.findall(text)}


def _known_keys(stored: Stored, place: tuple[str, ...], questions: Mapping[str, Question]) -> Iterator[str]:
    for key in stored.mapping(*place):
        if key not in questions:
            raise stored.fault(
                (*place, key), f"answers question '{key}', which is not among the {len(questions)} asked"
            )
        yield key


def _in_order(name: str) -> tuple[bool, int, str]:
    return (not name.isdecimal(), int(name) if name.isdecimal() else 0, name)
