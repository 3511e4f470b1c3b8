"""``dialrl import qa``: questions of Parquet or JSON-lines files in the form the environment search reads.

One JSON object a line: id, question, answers, source, split. Not here: reading the many shapes (``questions``).
"""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from dialrl.errors import InputError
from dialrl.scenario.config import ImportQaConfig
from dialrl.scenario.questions import Question, load_questions
from dialrl.summary import StageSummary
from dialrl.trajectory.atomic import write_text
from dialrl.trajectory.writer import refuse_existing


def import_qa(
    inputs: Sequence[Path], output: Path, config: ImportQaConfig | None = None, *, overwrite: bool = False
) -> StageSummary:
    """Write the questions of ``inputs`` to ``output``, in order.

    Raises InputError for an id in two files, and for a question without an accepted answer unless they are left out.
    """
    config = config or ImportQaConfig()
    refuse_existing(output, overwrite=overwrite, resumable=False)
    questions = _all(inputs)
    answered = [question for question in questions if question.answers]
    if len(answered) < len(questions) and not config.skip_unanswered:
        first = next(question for question in questions if not question.answers)
        raise InputError(
            f"{len(questions) - len(answered)} of {len(questions)} questions have no accepted answer, the first is"
            f" '{first.id}'. There is nothing to reward in them: leave them out with --skip-unanswered."
        )
    lines = [json.dumps(_named(question, config).to_json(), ensure_ascii=False) for question in answered]
    write_text(output, "\n".join(lines) + "\n")
    counts = {
        "questions": len(answered),
        "answers": sum(len(question.answers) for question in answered),
        "unanswered_left_out": len(questions) - len(answered),
    }
    sources = dict(sorted(Counter(question.source or "none" for question in answered).items()))
    return StageSummary("import qa", output, counts, {"questions_by_source": sources})


def _all(inputs: Sequence[Path]) -> list[Question]:
    questions, seen = list[Question](), dict[str, Path]()
    for path in inputs:
        for question in load_questions(path):
            if question.id in seen:
                raise InputError(
                    f"The id '{question.id}' stands in '{seen[question.id]}' and in '{path}'; expected once."
                )
            seen[question.id] = path
            questions.append(question)
    return questions


def _named(question: Question, config: ImportQaConfig) -> Question:
    if config.split is None:
        return question
    return Question(question.id, question.question, question.answers, question.source, config.split)
