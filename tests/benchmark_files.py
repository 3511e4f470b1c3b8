"""Small benchmark files of the published shapes, with invented content. Not a test module."""

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

Json = dict[str, Any]

# The first question asks for a calm person: references 0, 6, 0, 7; numbers and numeric texts mixed, as published.
EMOTIONS = ("Calm", "Proud", "Sad", "Tense")
PROMPT = (
    "\nA gardener finds the gate open.\n\nGive each a score. Then critique your answer by thinking it through step by"
    " step. Finally, give your revised scores.\n\nUse this format:\n\nFirst pass scores:\nCalm: <score>\n\nCritique:"
    " <your critique here>\n\nRevised scores:\nCalm: <revised score>\n\n[End of answer]\n\nZero is a valid score.\n"
)


def eqbench_question(*scores: float | str) -> Json:
    reference: Json = {f"emotion{place}": name for place, name in enumerate(EMOTIONS, start=1)}
    reference |= {f"emotion{place}_score": score for place, score in enumerate(scores, start=1)}
    return {"prompt": PROMPT, "reference_answer": {}, "reference_answer_fullscale": reference}


def eqbench_questions(folder: Path, *references: Sequence[float | str]) -> Path:
    """Questions "1", "2" ... of these reference scores."""
    questions = {str(number): eqbench_question(*scores) for number, scores in enumerate(references, start=1)}
    return write_json(folder / "questions.json", questions)


def intensities(*scores: float | str) -> Json:
    return dict(zip(EMOTIONS, scores, strict=True))


def eqbench_answers(folder: Path, *iterations: Mapping[str, Json | str]) -> Path:
    """A result file: an answer is {first_pass, revised}, or a text for raw_inference."""
    results = {}
    for number, answers in enumerate(iterations, start=1):
        stored = {key: answer for key, answer in answers.items() if not isinstance(answer, str)}
        texts = {key: answer for key, answer in answers.items() if isinstance(answer, str)}
        results[str(number)] = {"respondent_answers": stored, "raw_inference": texts, "individual_scores": {}}
    return write_json(folder / "results.json", {"benchmark_score": 0.0, "raw_results": results})


def first_pass(*scores: float | str) -> Json:
    return {"first_pass": intensities(*scores), "revised": {}}


def ea_item(qid: str, right: int = 0, *, language: str = "en", category: str = "Personal-Self", **more: Any) -> Json:
    choices = [f"choice {place} of {qid}" for place in range(4)]
    return {
        "qid": qid, "language": language, "category": category, "question type": "Action",
        "scenario": "A kettle boils over.", "subject": "Nora", "choices": choices, "label": choices[right], **more,
    }  # fmt: skip


def eu_item(qid: str, right: tuple[int, int] = (0, 0), *, language: str = "en", causes: int = 4, **more: Any) -> Json:
    emotions = ["Joy", "Anger", "Fear", "Pride", "Guilt", "Relief"]
    reasons = [f"reason {place} of {qid}" for place in range(causes)]
    return {
        "qid": qid, "language": language, "coarse_category": "emotional_cues", "finegrained_category": "vocal_cues",
        "scenario": "A letter arrives.", "subject": "Odd", "emotion_choices": emotions,
        "emotion_label": emotions[right[0]], "cause_choices": reasons, "cause_label": reasons[right[1]], **more,
    }  # fmt: skip


def conversation(key: str, *emotions: float, changes: Sequence[float] | None = None, **more: Any) -> Json:
    """A SAGE conversation through these emotions; ``changes`` default to their differences."""
    moved = changes or [after - before for before, after in pairwise(emotions)]
    history: list[Json] = []
    for turn, emotion in enumerate(emotions):
        line: Json = {"role": "user", "content": "The neighbour's\u2028dog again.", "emotion-point": emotion}
        if turn:
            line["planning"] = {"change": moved[turn - 1], "analyse": "He listens."}
        history += [line, {"role": "assistant", "content": "That sounds loud."}]
    final = emotions[-1]
    states = [name for name, least in (("S", 100), ("A", 70), ("B", 40), ("C", 10), ("F", -999)) if final >= least]
    told = {"id": key, "emo_point": final, "emo_state": f"Emotion-{states[0]}", "history": history[:-1]}
    return {**told, **more}


def profile(key: str) -> Json:
    return {"id": key, "player": "A baker.", "scene": "A small shop.", "task": "vent", "first_talk": "Again!"}


def write_json(path: Path, content: Any) -> Path:
    path.write_text(json.dumps(content, ensure_ascii=False, indent=1), encoding="utf-8")
    return path


def write_lines(path: Path, lines: Iterable[Any]) -> Path:
    r"""JSON lines, ended by ``\n`` alone; texts may hold U+2028 as it is."""
    path.write_bytes("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode())
    return path
