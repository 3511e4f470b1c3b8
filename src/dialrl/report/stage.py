"""``dialrl report``: run directories and trajectory files become one page that can be looked at, kept and sent.

Not here: any figure (``run_figures``, ``file_figures``), any drawing (``charts``, the page's script).
"""

from collections.abc import Sequence
from pathlib import Path

from dialrl.progress import SILENT, Progress
from dialrl.report.charts import file_charts, run_charts
from dialrl.report.config import ReportConfig
from dialrl.report.dialogues import Budget, dialogues_of
from dialrl.report.file_figures import FileFigures, file_figures
from dialrl.report.overview import cards, warnings
from dialrl.report.page import plotting_library, render
from dialrl.report.sources import DialogueSet, Given, sort_out
from dialrl.report.study_charts import study_charts, study_tables
from dialrl.report.vocabulary import pieces
from dialrl.summary import StageSummary
from dialrl.trajectory.atomic import write_text
from dialrl.trajectory.writer import refuse_existing


def report(
    inputs: Sequence[Path],
    output: Path,
    config: ReportConfig | None = None,
    *,
    overwrite: bool = False,
    progress: Progress = SILENT,
) -> StageSummary:
    """Write the page about ``inputs`` (run directories, trajectory files, studies of the laboratory) to ``output``.

    Raises OutputExistsError, MissingExtraError without the extra ``report``, and what opening the inputs raises.
    """
    config = config or ReportConfig()
    refuse_existing(output, overwrite=overwrite, resumable=False)
    given = sort_out(inputs)
    plotting_library()
    progress.start("report", len(given.sets), "files")
    figures, sets, budget = [], [], Budget(config)
    for one in given.sets:
        figures.append(file_figures(one))
        sets.append(list(dialogues_of(one, config, budget)))
        progress.advance()
    named = given.runs or given.studies or given.sets
    title = config.title or ", ".join(one.name for one in named)
    charts = [*study_charts(given.studies), *run_charts(given.runs), *file_charts(figures)]
    content = {
        "title": title,
        "cards": cards(given.runs, figures, given.studies),
        "warnings": warnings(given.runs, given.sets),
        "charts": [chart.to_json() for chart in charts],
        "tables": study_tables(given.studies),
        "sets": [_described(one, f, len(shown)) for one, f, shown in zip(given.sets, figures, sets, strict=True)],
        "pieces": pieces(given.runs, budget.seen),
    }
    write_text(output, render(title, content, sets))
    return _summary(output, given, figures, [len(shown) for shown in sets], len(charts), budget)


def _described(given: DialogueSet, figures: FileFigures, shown: int) -> dict[str, object]:
    return {
        "name": given.name,
        "role": given.role,
        "file": str(given.source.shards[0].path),
        "dialogues": figures.counts["dialogues"],
        "shown": shown,
        "trains": "advantage" in given.source.names,
        "reward": "reward" if "reward" in given.source.names else "distance gained",
    }


def _summary(
    output: Path, given: Given, figures: Sequence[FileFigures], shown: Sequence[int], charts: int, budget: Budget
) -> StageSummary:
    total = sum(f.counts["dialogues"] for f in figures)
    lines = []
    if sum(shown) < total:
        lines.append(
            f"{total - sum(shown)} of {total} dialogues are counted in the charts but cannot be opened; --dialogues N"
            " takes more."
        )
    for number, what, flag in (
        (budget.without_tokens, "token ids", "--tokens"),
        (budget.without_quotes, "evidence nor reasoning", "--quotes"),
    ):
        if number:
            lines.append(f"{number} dialogues show no {what}; {flag} N takes more.")
    counts = {"runs": len(given.runs), "files": len(given.sets), "charts": charts, "dialogues": sum(shown)}
    if given.studies:
        counts["studies"] = len(given.studies)
    return StageSummary("report", output, {**counts, "bytes": output.stat().st_size}, warnings=tuple(lines))
