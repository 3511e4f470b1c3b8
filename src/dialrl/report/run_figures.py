"""The rows behind the charts of a training run: one mapping a point, made from its metrics and evaluations.

Not here: how they are drawn (``charts``), and figures of single files (``file_figures``).
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from dialrl.advantage.pools import DEGENERATE
from dialrl.report.sources import Run
from dialrl.trajectory.layout import Layout, floats
from dialrl.trajectory.reader import TrajectoryFile

Row = dict[str, Any]
REFERENCES = ("silent", "myopic", "optimum")
_UPDATE = ("entropy", "gradient_norm", "mean_abs_advantage", "return_std", "ratio_max", "clipped_share")
_FLAGS = ("cut_replies", "duplicate_dialogues", "failed_dialogues", "further_segments", "replaced_degenerate_groups")


def measure(runs: Iterable[Run]) -> str:
    """``share`` where every run has a known optimum, else ``score``."""
    entries = [entry for run in runs for entry in (*run.evaluations, *run.metrics)]
    return "share" if entries and all("share" in entry for entry in entries) else "score"


def held_out_curve(run: Run, figure: str) -> list[Row]:
    """Held-out scores by finished iterations, with intervals; 0 is the starting policy."""
    rows = []
    for entry in run.evaluations:
        interval = entry.get(f"{figure}_interval") or entry.get("intervals", {}).get(figure, {})
        rows.append(
            {
                "run": run.name,
                "what": "held out",
                "iteration": entry["iteration"] + 1,
                "value": entry[figure],
                "low": interval.get("low"),
                "high": interval.get("high"),
            }
        )
    return rows


def training_curve(run: Run, figure: str) -> list[Row]:
    """Mean of the training dialogues, iteration by iteration."""
    return [
        {"run": run.name, "what": "training", "iteration": entry["iteration"] + 1, "value": entry[figure]}
        for entry in run.metrics
        if entry.get(figure) is not None
    ]


def reference_lines(runs: Sequence[Run], figure: str) -> list[Row]:
    """Silent, myopic and optimum, where they are known; those of the first run that has any."""
    for run in runs:
        for entry in run.evaluations:
            if entry.get("reference"):
                known = entry["reference"]
                return [{"line": name, "value": known[name][figure]} for name in REFERENCES if name in known]
    return []


def update_figures(run: Run) -> list[Row]:
    """Entropy, gradient norm and the others to watch, one row a figure and iteration."""
    return [
        {"run": run.name, "iteration": entry["iteration"] + 1, "figure": name.replace("_", " "), "value": value}
        for entry in run.metrics
        for name in _UPDATE
        if (value := entry["update"].get(name)) is not None
    ]


def stage_seconds(run: Run) -> list[Row]:
    return [
        {"run": run.name, "iteration": entry["iteration"] + 1, "stage": stage, "seconds": seconds}
        for entry in run.metrics
        for stage, seconds in entry["seconds"].items()
    ]


def tokens_per_second(run: Run) -> list[Row]:
    """Sampled tokens a second of ``rollout``, trained tokens a second of ``update``; a stage passed by has none."""
    rows = []
    for entry in run.metrics:
        sampled, seconds = entry["counts"].get("rollout", {}).get("reply_tokens"), entry["seconds"].get("rollout")
        rates = {
            "rollout": sampled / seconds if sampled and seconds and seconds > 0.05 else None,
            "update": entry["update"].get("tokens_per_second"),
        }
        rows += [
            {"run": run.name, "iteration": entry["iteration"] + 1, "stage": stage, "rate": rate}
            for stage, rate in rates.items()
            if rate is not None
        ]
    return rows


def token_counts(run: Run) -> list[Row]:
    """Context and sampled tokens of the rollouts, tokens the update trained on (each epoch counts)."""
    rows = []
    for entry in run.metrics:
        rollout = entry["counts"].get("rollout", {})
        counts = {
            "context": rollout.get("prompt_tokens"),
            "sampled": rollout.get("reply_tokens"),
            "trained": entry["update"].get("trained_tokens"),
        }
        rows += [
            {"run": run.name, "iteration": entry["iteration"] + 1, "kind": kind, "tokens": count}
            for kind, count in counts.items()
            if count is not None
        ]
    return rows


def rollout_flags(run: Run) -> list[Row]:
    """What the rollout counted as odd: cut replies, duplicates, failures."""
    return _counted(run, "rollout", _FLAGS)


def judge_counts(run: Run) -> list[Row]:
    """Judgements by status, and turns whose reward had to be filled."""
    return [*_counted(run, "judge", None), *_counted(run, "returns", ("turns_filled", "turns_missing"))]


def _counted(run: Run, stage: str, names: Sequence[str] | None) -> list[Row]:
    """Counts of a stage by iteration; what is 0 all the way is left out, unless nothing else is there."""
    rows = [
        {"run": run.name, "iteration": entry["iteration"] + 1, "what": name.replace("_", " "), "count": count}
        for entry in run.metrics
        for name, count in entry["counts"].get(stage, {}).items()
        if names is None or name in names
    ]
    ever = {row["what"] for row in rows if row["count"]}
    return [row for row in rows if row["what"] in ever] or rows


def degenerate_pools(run: Run) -> list[Row]:
    """Share of pools without a spread in each training file that has returns, by scope (group, turn in its group)."""
    rows = []
    for number, path in run.training_files():
        source = TrajectoryFile.open(path)
        if "return" in source.names:
            rows += [{"run": run.name, "iteration": number + 1, **pool} for pool in pools_of(source)]
    return rows


def pools_of(source: TrajectoryFile) -> list[Row]:
    """Pools of returns, by group (each dialogue's first return) and by turn within a group; which have no spread.

    A pool of fewer than two known values is degenerate too: nothing is compared (docs/credit.md 2).
    """
    counts = {"dialogues of a group": [0, 0], "turn within a group": [0, 0]}
    for table in source.groups(["group_id", "sample", "turn", "return"]):
        layout = Layout.of(table)
        value = floats(table["return"])
        group = layout.group_of_row
        first = np.zeros(layout.rows, dtype=np.bool_)
        first[layout.dialogue_start[:-1]] = True
        by_turn = group * (int(layout.turn.max()) + 1) + layout.turn
        for name, pool, member in (
            ("dialogues of a group", group[first], value[first]),
            ("turn within a group", by_turn, value),
        ):
            pools, degenerate = _degenerate(pool, member)
            counts[name][0] += pools
            counts[name][1] += degenerate
    return [
        {"scope": name, "pools": pools, "degenerate": degenerate, "share": degenerate / pools}
        for name, (pools, degenerate) in counts.items()
        if pools
    ]


def _degenerate(pool: Any, value: Any) -> tuple[int, int]:
    """Pools with a known value, and how many of them have a spread of at most rounding."""
    known = ~np.isnan(value)
    _, index = np.unique(pool[known], return_inverse=True)
    if not len(index):
        return 0, 0
    number = np.bincount(index)
    mean = np.bincount(index, weights=value[known]) / number
    spread = np.sqrt(np.bincount(index, weights=(value[known] - mean[index]) ** 2) / number)
    flat = (number < 2) | (spread <= DEGENERATE * np.maximum(1.0, np.abs(mean)))
    return len(number), int(flat.sum())
