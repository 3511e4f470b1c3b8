"""``dialrl evaluate qa --engine``: a model answers questions in the environment ``search``; scored as stored dialogues.

Not here: the environment (``dialrl.environment.search``), scores (``qa``).
"""

import json
from collections.abc import Sequence
from pathlib import Path

from dialrl.errors import InputError
from dialrl.evaluate.answer_store import check_failures, failure_warning
from dialrl.evaluate.benchmark_config import QaConfig
from dialrl.evaluate.qa import evaluate_qa
from dialrl.evaluate.respondent import with_asking
from dialrl.evaluate.rolled_out import WHY, dialogues_place, rollout_of
from dialrl.progress import SILENT, Progress
from dialrl.rollout.stage import Policy, roll_out
from dialrl.scenario.questions import Question, load_questions
from dialrl.summary import StageSummary
from dialrl.trajectory.atomic import write_text
from dialrl.trajectory.writer import refuse_existing

SPLIT = "test"


def run_qa(
    policy: Policy,
    questions: Path,
    config: QaConfig,
    *,
    training: Sequence[Path] = (),
    output: Path | None = None,
    overwrite: bool = False,
    resume: bool = False,
    progress: Progress = SILENT,
) -> StageSummary:
    """Let ``policy`` search for answers to the ``questions`` of a split and score them.

    A question without an answer counts 0. Raises HaltError (resumable) when the endpoint or engine breaks or the budget
    ends, FailureThresholdError when too many dialogues broke.
    """
    if output is not None and not resume:
        refuse_existing(output, overwrite=overwrite)
    split = config.split or SPLIT
    chosen = [question for question in load_questions(questions) if question.split == split][: config.limit]
    if not chosen:
        raise InputError(f"'{questions}' has no questions of the split '{split}'.")
    with dialogues_place(output) as dialogues:
        # The environment and the scores know these questions and no others.
        asked = _written(
            chosen, dialogues.with_name(dialogues.name.replace(".dialogues.parquet", "") + ".questions.jsonl")
        )
        options = {**config.environment_options, "questions": str(asked)}
        rollout = rollout_of(config, "search", options, split=split, groups=len(chosen), samples=1)
        rolled = roll_out(policy, dialogues, rollout, overwrite=overwrite, resume=resume, progress=progress)
        summary = evaluate_qa(dialogues, asked, config, training=training, output=output, overwrite=overwrite or resume)
    failed = rolled.counts["failed_dialogues"]
    told = {"temperature": rollout.temperature, "environment_options": options}
    asked_summary = with_asking(summary, config, policy.digest, rolled.figures.get("calls", {}), told)
    found = (*failure_warning(failed), *asked_summary.warnings)
    whole = StageSummary(summary.stage, output, summary.counts, asked_summary.figures, found)
    return check_failures(whole, failed, rolled.counts["dialogues"], config.max_failed, advice=WHY)


def _written(questions: Sequence[Question], place: Path) -> Path:
    """``questions`` as JSON lines at ``place``."""
    lines = (json.dumps(question.to_json(), ensure_ascii=False) for question in questions)
    write_text(place, "".join(f"{line}\n" for line in lines))
    return place
