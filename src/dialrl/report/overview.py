"""The figures at the top of the page, and the warnings of all stages: what to know before looking at any chart."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from dialrl.report import run_figures
from dialrl.report.file_figures import FileFigures
from dialrl.report.sources import DialogueSet, Run
from dialrl.report.study import Study

Card = dict[str, str]


def cards(runs: Sequence[Run], files: Sequence[FileFigures], studies: Sequence[Study] = ()) -> list[Card]:
    """Name, value and a note, in the order they are shown."""
    found = [card for study in studies for card in _study_cards(study, several=len(studies) > 1)]
    found += [card for run in runs for card in _run_cards(run, several=len(runs) > 1)]
    if not runs:
        found += [_file_card(figures) for figures in files]
    return found


def _run_cards(run: Run, *, several: bool) -> list[Card]:
    figure = run_figures.measure([run])
    label = "share of optimum" if figure == "share" else "score"
    start = f"{run.name}: " if several else ""
    rows = run_figures.held_out_curve(run, figure)
    found: list[Card] = []
    if rows:
        first, last, best = rows[0], rows[-1], max(rows, key=lambda row: row["value"])
        found += [
            _card(f"{start}{label} before", f"{first['value']:.2f}", _interval(first)),
            _card(f"{start}after {last['iteration']} iterations", f"{last['value']:.2f}", _interval(last)),
            _card(f"{start}best", f"{best['value']:.2f}", f"at iteration {best['iteration']}"),
        ]
    if run.metrics:
        found += _work_cards(run, start)
    return found


def _work_cards(run: Run, start: str) -> list[Card]:
    dialogues = sum(entry["counts"].get("rollout", {}).get("dialogues", 0) for entry in run.metrics)
    tokens = sum(entry["counts"].get("rollout", {}).get("reply_tokens", 0) for entry in run.metrics)
    seconds = sum(sum(entry["seconds"].values()) for entry in run.metrics)
    return [
        _card(f"{start}training dialogues", f"{dialogues:,}", f"{len(run.metrics)} iterations"),
        _card(f"{start}sampled tokens", f"{tokens:,}", f"{tokens / seconds:,.0f} a second in all" if seconds else ""),
        _card(f"{start}time", _duration(seconds), "all stages, evaluations with them"),
    ]


def _file_card(figures: FileFigures) -> Card:
    counts = figures.counts
    note = f"{counts['groups']:,} groups, {counts['turns']:,} turns"
    return _card(figures.name, f"{counts['dialogues']:,} dialogues", note)


def _study_cards(study: Study, *, several: bool) -> list[Card]:
    """The best preset of each setting."""
    start, found = f"{study.name}: " if several else "", []
    for setting in study.settings:
        here = [cell for cell in study.cells if cell.setting == setting]
        best = max(here, key=lambda cell: cell.final)
        note = f"share {best.final:.3f}, best of {len(here)} presets on {len(best.runs)} seeds"
        found.append(_card(f"{start}{setting}", best.preset, note))
    return found


def _interval(row: dict[str, Any]) -> str:
    return "" if row.get("low") is None else f"95 % interval {row['low']:.2f} to {row['high']:.2f}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _card(name: str, value: str, note: str) -> Card:
    return {"name": name, "value": value, "note": note}


def warnings(runs: Sequence[Run], sets: Sequence[DialogueSet]) -> list[str]:
    """Sentences of all stages, each once, with how many iterations said it."""
    said: Counter[str] = Counter()
    for run in runs:
        for entry in run.metrics:
            said.update({*entry["warnings"], *entry["update"].get("warnings", ())})
    from_runs = [f"{sentence} ({count} of the iterations)" for sentence, count in said.most_common()]
    named = [(given.name, record) for given in sets if given.run is None for record in given.source.lineage.records]
    from_files = dict.fromkeys(f"{name}: {sentence}" for name, record in named for sentence in record.warnings)
    return [*from_runs, *from_files]
