"""``dialrl evaluate emobench``: accuracy of stored EmoBench answers by task, language and category, beside chance.

Not here: loading (``emobench_items``, ``emobench_answers``, ``emobench_csv``), votes (``emobench_score``), figures
(``emobench_report``), asking a model.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa

from dialrl.errors import InputError, UsageError
from dialrl.evaluate.benchmark_config import EmoBenchConfig
from dialrl.evaluate.emobench_answers import Items, read_json_answers
from dialrl.evaluate.emobench_csv import read_csv_answers
from dialrl.evaluate.emobench_items import load_items
from dialrl.evaluate.emobench_report import Cell, Report
from dialrl.evaluate.emobench_score import Answered
from dialrl.evaluate.item_results import ItemResults
from dialrl.summary import StageSummary

COLUMNS = [
    *((name, pa.string()) for name in ("task", "language", "qid", "category", "subcategory")),
    ("chance", pa.float64()),
    ("shuffled_score", pa.float64()),
]


def evaluate_emobench(
    answers: Sequence[Path],
    questions: Sequence[Path] = (),
    config: EmoBenchConfig | None = None,
    *,
    output: Path | None = None,
    overwrite: bool = False,
) -> StageSummary:
    """Score stored ``answers``: JSON lines (which need the ``questions``), or the CSV files of 2024.

    Raises InputError naming file, line and field; UsageError where files and settings do not fit each other.
    """
    config = config or EmoBenchConfig()
    items = load_items(questions) if questions else {}
    scoring = config.scoring or ("2024" if _are_csv(answers) else "2025")
    answered = _chosen(_read(answers, items, config), config)
    report = Report(answered, items, config, votes=scoring == "2024")
    if output is not None:
        results = ItemResults("emobench", COLUMNS, report.rows())
        results.write(output, [*answers, *_only_files(questions)], config, overwrite=overwrite)
    return StageSummary("evaluate emobench", output, report.counts(), report.figures(scoring), report.warnings())


def _read(answers: Sequence[Path], items: Items, config: EmoBenchConfig) -> list[Answered]:
    if _are_csv(answers):
        return read_csv_answers(answers)
    if not items:
        raise UsageError("These answers are letters; give the questions they belong to: --questions EA.jsonl")
    if len(answers) > 2:
        raise UsageError(f"Expected one file of answers, or one a task; got {len(answers)}.")
    found: dict[tuple[str, str, str], Answered] = {}
    for path in answers:
        for one in read_json_answers(path, items, config.shuffle_seed):
            key = (one.task, one.language, one.qid)
            if key in found:
                raise InputError(f"'{path}' answers {'/'.join(key)}, which another file given answers too.")
            found[key] = one
    return list(found.values())


def _are_csv(paths: Sequence[Path]) -> bool:
    kinds = {path.suffix.lower() == ".csv" for path in paths}
    if len(kinds) != 1:
        raise UsageError("Give either CSV files of answers or JSON lines, at least one file and not both kinds.")
    return kinds.pop()


def _chosen(answered: Iterable[Answered], config: EmoBenchConfig) -> list[Answered]:
    """Those of the tasks and languages asked for, the first ``limit`` of each, in order of task and language."""
    cells: dict[Cell, list[Answered]] = {}
    for one in answered:
        if (not config.tasks or one.task in config.tasks) and (
            not config.languages or one.language in config.languages
        ):
            cells.setdefault(one.cell, []).append(one)
    if not cells:
        wanted = ", ".join([*config.tasks, *config.languages]) or "EA or EU"
        raise InputError(f"No answer to an item of {wanted} is in the files given.")
    return [one for cell in sorted(cells) for one in cells[cell][: config.limit]]


def _only_files(paths: Iterable[Path]) -> list[Path]:
    inside = [sorted(path.glob("E[AU].jsonl")) if path.is_dir() else [path] for path in paths]
    return [path for paths in inside for path in paths]
