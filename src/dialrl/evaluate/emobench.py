"""``dialrl evaluate emobench``: accuracy of EmoBench answers by task, language and category, beside chance.

Not here: loading (``emobench_items``, ``emobench_answers``, ``emobench_csv``), votes (``emobench_score``), figures
(``emobench_report``), asking a model (``emobench_live``).
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from dialrl.errors import FailureThresholdError, InputError, UsageError
from dialrl.evaluate.answer_store import FAILED, failure_warning, stored_rows
from dialrl.evaluate.benchmark_config import EmoBenchConfig
from dialrl.evaluate.emobench_answers import Items, read_json_answers
from dialrl.evaluate.emobench_asked import ANSWERS_COLUMN, Said, answer_rows, answered_of, said_by_item
from dialrl.evaluate.emobench_csv import read_csv_answers
from dialrl.evaluate.emobench_items import Item, load_items
from dialrl.evaluate.emobench_report import Cell, Report
from dialrl.evaluate.emobench_score import Answered
from dialrl.evaluate.item_results import ItemResults
from dialrl.summary import StageSummary

COLUMNS = [
    *((name, pa.string()) for name in ("task", "language", "qid", "category", "subcategory")),
    ("chance", pa.float64()),
    ("shuffled_score", pa.float64()),
    ANSWERS_COLUMN,
]


def evaluate_emobench(
    answers: Sequence[Path],
    questions: Sequence[Path] = (),
    config: EmoBenchConfig | None = None,
    *,
    output: Path | None = None,
    overwrite: bool = False,
) -> StageSummary:
    """Score stored ``answers``: JSON lines (which need the ``questions``), the CSV files of 2024, or a model's results.

    Raises InputError naming file, line and field; UsageError where files and settings do not fit each other.
    """
    config = config or EmoBenchConfig()
    items = load_items(questions) if questions else {}
    if [path.suffix for path in answers] == [".parquet"]:
        return _rescored(answers[0], items, only_files(questions), config, output=output, overwrite=overwrite)
    scoring = config.scoring or ("2024" if _are_csv(answers) else "2025")
    answered = _chosen(_read(answers, items, config), config)
    report = Report(answered, items, config, votes=scoring == "2024")
    if output is not None:
        results = ItemResults("emobench", COLUMNS, report.rows())
        results.write(output, [*answers, *only_files(questions)], config, overwrite=overwrite)
    return StageSummary("evaluate emobench", output, report.counts(), report.figures(scoring), report.warnings())


def _rescored(
    answers: Path,
    items: Items,
    questions: Sequence[Path],
    config: EmoBenchConfig,
    *,
    output: Path | None,
    overwrite: bool,
) -> StageSummary:
    """Results of a model that was asked, scored anew; shuffled as they were."""
    if not items:
        raise UsageError("The answers of a model are letters; give the questions: --questions EA.jsonl")
    rows, origin = stored_rows(answers, "emobench")
    said = said_by_item(rows, items, answers)
    chosen = first_of_each(said, config)
    options = origin["options"]
    as_asked = config.updated(shuffle_seed=options["shuffle_seed"], scoring=config.scoring or options["scoring"])
    return score_said(
        {key: said[key] for key in chosen},
        items,
        [answers, *questions],
        as_asked,
        output=output,
        overwrite=overwrite,
        origin={"policy": origin["policy"]},
    )


def first_of_each(keys: Iterable[tuple[str, str, str]], config: EmoBenchConfig) -> list[tuple[str, str, str]]:
    """The keys of the tasks and languages asked for, the first ``limit`` of each."""
    cells: dict[Cell, list[tuple[str, str, str]]] = {}
    for key in keys:
        if (not config.tasks or key[0] in config.tasks) and (not config.languages or key[1] in config.languages):
            cells.setdefault(key[:2], []).append(key)
    return [key for cell in sorted(cells) for key in cells[cell][: config.limit]]


def score_said(
    said: Mapping[tuple[str, str, str], Said],
    items: Items,
    inputs: Sequence[Path],
    config: EmoBenchConfig,
    *,
    output: Path | None,
    overwrite: bool,
    origin: Mapping[str, Any],
) -> StageSummary:
    """The summary of what a model ``said`` by item, and the results file if there is to be one.

    Items of which no answer came are in no mean. Raises InputError where none came at all.
    """
    known = {key: answered_of(items[key], replies, config.shuffle_seed) for key, replies in said.items()}
    answered = [one for one in known.values() if one.orders]
    failed = [key for key, one in known.items() if not one.orders]
    if not answered:
        errors = {reply.error for replies in said.values() for reply in replies.values()}
        raise FailureThresholdError(f"No item got an answer: {'; '.join(sorted(map(str, errors)))[:300]}")
    scoring = config.scoring or "2025"
    report = Report(answered, items, config, votes=scoring == "2024")
    if output is not None:
        scored = [{**row, "answers": answer_rows(said[_key(row)])} for row in report.rows()]
        rows = [*scored, *(_failed_row(items[key], said[key]) for key in failed)]
        ItemResults("emobench", COLUMNS, rows, origin).write(output, inputs, config, overwrite=overwrite)
    counts = report.counts() | ({"failed_items": len(failed)} if failed else {})
    warnings = (*failure_warning(len(failed)), *report.warnings())
    return StageSummary("evaluate emobench", output, counts, report.figures(scoring), warnings)


def _key(row: Mapping[str, Any]) -> tuple[str, str, str]:
    return row["task"], row["language"], row["qid"]


def _failed_row(item: Item, said: Said) -> dict[str, Any]:
    named = {"task": item.task, "language": item.language, "qid": item.qid}
    about = {"category": item.category, "subcategory": item.subcategory, "chance": 100.0 * item.chance}
    places = {"scenario_id": f"{item.task}/{item.qid}", "item": "/".join(item.key), "status": FAILED}
    return {**places, **named, **about, "answers": answer_rows(said)}


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
    by_key = {(one.task, one.language, one.qid): one for one in answered}
    chosen = first_of_each(by_key, config)
    if not chosen:
        wanted = ", ".join([*config.tasks, *config.languages]) or "EA or EU"
        raise InputError(f"No answer to an item of {wanted} is in the files given.")
    return [by_key[key] for key in chosen]


def only_files(paths: Iterable[Path]) -> list[Path]:
    """The files of questions, those inside folders too."""
    inside = [sorted(path.glob("E[AU].jsonl")) if path.is_dir() else [path] for path in paths]
    return [path for paths in inside for path in paths]
