"""How a training run looks in a terminal: a table that grows, then the curve, and a dialogue before and after."""

import re
import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from dialrl.progress import SILENT, Progress
from dialrl.summary import StageSummary

_SHOWN_ROWS = 14
_COLUMNS = ("iteration", "reward", "share", "held out", "turns", "entropy", "grad norm", "|A|", "ratio max", "seconds")


class IterationTable:
    """Shows iterations as they finish: a live table on a terminal, a line each elsewhere. Writes to stderr."""

    def __init__(self, iterations: int, *, quiet: bool) -> None:
        self._iterations, self._quiet = iterations, quiet
        self._rows: list[list[str]] = []
        self._seconds: list[float] = []
        self._live: Any = None
        self._flag: str | None = None
        self._told: set[str] = set()
        self.progress: Progress = SILENT

    def __enter__(self) -> Self:
        if not self._quiet and sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(stderr=True), refresh_per_second=4)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def add(self, record: Mapping[str, Any]) -> None:
        """A finished iteration's metrics."""
        self._rows.append(_cells(record, self._iterations))
        self._seconds.append(sum(record["seconds"].values()))
        self._flag = next((said for said in record.get("warnings", ()) if said.startswith("REWARD RISES")), None)
        if self._live is not None:
            self._live.update(self._table())
        elif not self._quiet:
            named = zip(_COLUMNS, self._rows[-1], strict=True)
            sys.stderr.write("  ".join(f"{name} {cell}" for name, cell in named if cell) + "\n")
            sys.stderr.write(f"! {self._flag}\n" if self._flag else "")
            sys.stderr.flush()
        self._warn(record)

    def _warn(self, record: Mapping[str, Any]) -> None:
        """Print what an iteration warns of, each kind once: the same sentence with other numbers is told already."""
        said = [*record.get("warnings", ()), *(record["update"].get("warnings") or ())]
        for warning in (one for one in said if one != self._flag):
            kind = re.sub(r"[\d.,]+", "#", warning)
            if kind in self._told:
                continue
            self._told.add(kind)
            line = f"! iteration {record['iteration'] + 1}: {warning}"
            if self._live is not None:
                from rich.text import Text

                self._live.console.print(Text(line))
            else:
                sys.stderr.write(line + "\n")

    def _title(self) -> str:
        """How far, how fast, how long still: by the median of the latest iterations."""
        done, recent = len(self._rows), sorted(self._seconds[-_SHOWN_ROWS:])
        pace = recent[len(recent) // 2]
        left = timedelta(seconds=round(pace * (self._iterations - done)))
        return f"iteration {done} of {self._iterations}, {pace:.1f} s each, {left} left"

    def _table(self) -> Any:
        from rich.table import Table

        table = Table(box=None, padding=(0, 2, 0, 0), title=self._title(), caption=self._flag)
        for name in _COLUMNS:
            table.add_column(name, justify="right")
        for row in self._rows[-_SHOWN_ROWS:]:
            table.add_row(*row)
        return table


def _cells(record: Mapping[str, Any], iterations: int) -> list[str]:
    evaluation, update = record.get("evaluation") or {}, record["update"]
    held_out = evaluation.get("share", evaluation.get("score"))
    values = (
        record["score"], record.get("share"), held_out, record["mean_turns"], update.get("entropy"),
        update.get("gradient_norm"), update.get("mean_abs_advantage"), update.get("ratio_max"),
        sum(record["seconds"].values()),
    )  # fmt: skip
    return [f"{record['iteration'] + 1}/{iterations}", *("" if value is None else f"{value:.3g}" for value in values)]


def show_run(summary: StageSummary) -> None:
    """The last page of a run: a dialogue before and after, the curve with its reference lines, where the files lie."""
    from rich.text import Text

    from dialrl.cli.stdout import stdout_console
    from dialrl.train.run_directory import RunDirectory, read_json

    console = stdout_console()
    run = RunDirectory(Path(str(summary.figures["run"])))
    folders = [folder for folder in (run.base, *run.iterations()) if folder.evaluation.is_file()]
    if folders:
        measure = str(summary.figures["measure"])
        evaluations = [read_json(folder.evaluation) for folder in folders]
        points = [(entry["iteration"] + 1, entry[measure]) for entry in evaluations]
        lines = {name: value["share"] for name, value in dict(summary.figures["reference"]).items()}
        _show_before_and_after(console, folders[0].path, folders[-1].path)
        console.print(Text(f"\n{measure} on held-out scenarios, by iteration", style="bold"))
        console.print(Text(curve(points, lines if measure == "share" else {})), soft_wrap=True)
        _show_interval(console, summary)
    _show_safety(console, summary)
    _show_places(console, summary)


def _show_safety(console: Any, summary: StageSummary) -> None:
    """The last iteration's share of safe replies, and the flag."""
    from rich.text import Text

    safety = summary.figures.get("safety") or {}
    if safety.get("safe_replies") is not None:
        share, low, high = (safety[name] for name in ("safe_replies", "low", "high"))
        said = f"\nsafe replies in crisis dialogues {share:.3f} (95 % interval {low:.3f} to {high:.3f}), last iteration"
        console.print(Text(said), soft_wrap=True)
    for warning in summary.warnings:
        console.print(Text(f"! {warning}", style="bold red"), soft_wrap=True)


def _show_interval(console: Any, summary: StageSummary) -> None:
    from rich.text import Text

    figures = summary.figures
    low, high = figures["final_interval"]["low"], figures["final_interval"]["high"]
    console.print(
        Text(
            f"base {figures['base']:.3f} -> final {figures['final']:.3f} (95 % interval {low:.3f} to {high:.3f});"
            f" best {figures['best']:.3f} at iteration {figures['best_iteration'] + 1}"
        ),
        soft_wrap=True,
    )


def curve(points: Sequence[tuple[int, float]], lines: Mapping[str, float], *, height: int = 14, width: int = 60) -> str:
    """A small text plot: points as ``*``, reference values as labelled rows.

    Example: points at 0.1 and 0.6 under lines myopic 0.31 and optimum 1.0 show two stars between two dotted rows.
    """
    values = [value for _, value in points] + [value for name, value in lines.items() if name != "clairvoyant"]
    low, high = min([0.0, *values]), max(values)
    span = max(high - low, 1e-9)
    rows = [[" "] * width for _ in range(height)]
    labels: dict[int, str] = {}

    def row_of(value: float) -> int:
        return round((high - value) / span * (height - 1))

    for name, value in lines.items():
        if name in ("myopic", "optimum"):
            rows[row_of(value)] = ["."] * width
            labels[row_of(value)] = f"{name} {value:.2f}"
    last = max(step for step, _ in points) or 1
    for step, value in points:
        rows[row_of(value)][round(step / last * (width - 1))] = "*"
    left = [f"{high - span * index / (height - 1):6.2f} |" for index in range(height)]
    body = [f"{left[index]}{''.join(row)} {labels.get(index, '')}".rstrip() for index, row in enumerate(rows)]
    return "\n".join([*body, f"       +{'-' * width}", f"        0{str(last).rjust(width - 1)}"])


def _show_before_and_after(console: Any, before: Path, after: Path) -> None:
    from rich.text import Text

    from dialrl.cli.trajectory_view import show_dialogue
    from dialrl.trajectory.inspection import find_dialogue
    from dialrl.trajectory.reader import TrajectoryFile

    first = TrajectoryFile.open(_evaluated(before))
    table = next(first.groups(["group_id", "sample"]))
    name = f"{table['group_id'][0]}/{table['sample'][0]}"
    for title, place in (("before", before), ("after", after)):
        console.print(Text(f"\n{title} training, {place}", style="bold reverse"))
        show_dialogue(find_dialogue(TrajectoryFile.open(_evaluated(place)), name))


def _evaluated(folder: Path) -> Path:
    """The dialogues of an evaluation; where the outcome is the score, nobody judged them."""
    judged, rolled_out = (folder / "evaluation" / f"{stage}.parquet" for stage in ("judge", "rollout"))
    return judged if judged.is_file() else rolled_out


def _show_places(console: Any, summary: StageSummary) -> None:
    from rich.text import Text

    files = dict(summary.figures["files"])
    console.print(Text("\nfiles", style="bold"))
    for name, place in files.items():
        console.print(Text(f"  {name:14} {place}"), soft_wrap=True)
    if "trajectories" in files:
        console.print(Text(f"  look closer:   dialrl inspect {files['trajectories']}"), soft_wrap=True)
