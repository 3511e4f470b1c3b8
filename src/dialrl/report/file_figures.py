"""The rows behind the charts of one trajectory file: rewards and lengths by turn, advantages, flags, judge, tokens.

Streams the file once; holds sums, and the numbers of advantages for their histogram. Not here: how they are drawn.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dialrl.report.rewards import gains_of
from dialrl.report.sources import DialogueSet
from dialrl.trajectory.layout import Layout, floats
from dialrl.trajectory.lineage import Lineage

Row = dict[str, Any]
Floats = npt.NDArray[np.float64]
_BINS = 48
_READ = (
    "group_id", "sample", "turn", "reply", "reply_ids", "prompt_ids", "flags", "status", "finish_reason", "end_reason",
    "deficit", "position", "grades", "judge_status", "stop_turn", "reward", "advantage", "usage", "truncated",
)  # fmt: skip


@dataclass
class FileFigures:
    """Everything the charts need of one file."""

    name: str
    preset: str
    reward_by_turn: list[Row] = field(default_factory=list)
    length_unit: str = "tokens"
    length_by_turn: list[Row] = field(default_factory=list)
    advantages: list[Row] = field(default_factory=list)
    advantage_by_turn: list[Row] = field(default_factory=list)
    flags: list[Row] = field(default_factory=list)
    judge: list[Row] = field(default_factory=list)
    levels: list[Row] = field(default_factory=list)
    usage: list[Row] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)


class _Gathered:
    """What is added up while the file streams by."""

    def __init__(self, names: list[str]) -> None:
        self.terms = [name for name in names if name.startswith("advantage")]
        self.reads = [name for name in _READ if name in names] + [t for t in self.terms if t != "advantage"]
        self.turns: list[npt.NDArray[np.int64]] = []
        self.rewards: list[Floats] = []
        self.lengths: list[Floats] = []
        self.length_unit: str | None = None
        self.by_term: dict[str, list[Floats]] = {term: [] for term in self.terms}
        self.counted: dict[str, Counter[Any]] = {
            name: Counter() for name in ("flags", "judge", "levels", "usage", "counts")
        }

    def add(self, table: pa.Table) -> None:
        layout = Layout.of(table)
        self.turns.append(layout.turn)
        self.rewards.append(gains_of(table, layout))
        if self.length_unit is None:
            self.length_unit = _length_unit(table)
        self.lengths.append(_lengths(table, self.length_unit))
        for term in self.terms:
            self.by_term[term].append(floats(table[term]))
        self.counted["counts"].update(groups=layout.groups, dialogues=layout.dialogues, turns=layout.rows)
        self._count(table)

    def _count(self, table: pa.Table) -> None:
        names = table.column_names
        if "flags" in names:
            self.counted["flags"].update(pc.list_flatten(table["flags"]).to_pylist())
        if "status" in names:
            self.counted["flags"].update(_where(table, "status", {"error": "broken dialogue"}))
        if "finish_reason" in names:
            self.counted["flags"].update(_where(table, "finish_reason", {"length": "cut reply"}))
        if "end_reason" in names:
            self.counted["counts"].update({f"end: {k}": v for k, v in _values(table["end_reason"]).items()})
        if "judge_status" in names:
            self.counted["judge"].update(_values(table["judge_status"]))
        if "grades" in names:
            flat = pc.list_flatten(table["grades"]).combine_chunks()
            pairs = zip(flat.field("indicator").to_pylist(), flat.field("level").to_pylist(), strict=True)
            self.counted["levels"].update(pairs)
        if "usage" in names:
            self._count_usage(table["usage"])

    def _count_usage(self, column: Any) -> None:
        flat = pc.list_flatten(column).combine_chunks()
        if not len(flat):
            return
        for role, prompt, cached, completion in zip(*(flat.field(i).to_pylist() for i in range(4)), strict=True):
            fresh = (prompt or 0) - (cached or 0)
            for kind, count in (("context", fresh), ("cached context", cached or 0), ("sampled", completion or 0)):
                self.counted["usage"][role, kind] += count


def file_figures(given: DialogueSet) -> FileFigures:
    """Figures of one set of dialogues."""
    gathered = _Gathered(given.source.names)
    for table in given.source.groups(gathered.reads):
        gathered.add(table)
    turn = np.concatenate(gathered.turns)
    counted, name = gathered.counted, given.name
    preset = _preset(given.source.lineage)
    values = {term: np.concatenate(parts) for term, parts in gathered.by_term.items()}
    return FileFigures(
        name,
        preset,
        reward_by_turn=_by_turn(name, turn, np.concatenate(gathered.rewards)),
        length_unit=gathered.length_unit or "tokens",
        length_by_turn=_by_turn(name, turn, np.concatenate(gathered.lengths)),
        advantages=_histograms(name, preset, values),
        advantage_by_turn=_quantiles(name, preset, turn, values.get("advantage")),
        flags=[{"set": name, "flag": flag, "count": count} for flag, count in counted["flags"].most_common()],
        judge=[{"set": name, "status": status, "count": count} for status, count in counted["judge"].most_common()],
        levels=[
            {"set": name, "indicator": indicator, "level": level, "count": count}
            for (indicator, level), count in sorted(counted["levels"].items(), key=_by_level)
            if level
        ],
        usage=[{"set": name, "role": role, "kind": k, "tokens": n} for (role, k), n in counted["usage"].items() if n],
        counts=counted["counts"],
    )


def _preset(lineage: Lineage) -> str:
    """What made the advantages; several where the files of one set were made apart."""
    records = lineage.all_of("advantage")
    names = [str(record.details.get("estimator") or record.options.get("preset")) for record in records]
    return " and ".join(dict.fromkeys(names)) or "advantage"


def term_name(column: str, preset: str) -> str:
    """``advantage_turn`` of mica -> ``mica: turn``; the whole advantage is ``mica``."""
    return preset if column == "advantage" else f"{preset}: {column.removeprefix('advantage_')}"


def _length_unit(table: pa.Table) -> str:
    """What replies are measured in: what is known of the first turns, published dialogues have no ids."""
    has_ids = "reply_ids" in table.column_names and table["reply_ids"].null_count < table.num_rows
    return "tokens" if has_ids else "characters"


def _lengths(table: pa.Table, unit: str) -> Floats:
    """Sampled tokens of each turn, or characters where there are no ids (NaN without either)."""
    if unit == "tokens":
        return floats(pc.list_value_length(table["reply_ids"]))
    return floats(pc.utf8_length(table["reply"])) if "reply" in table.column_names else np.full(table.num_rows, np.nan)


def _values(column: Any) -> dict[str, int]:
    return {entry["values"]: entry["counts"] for entry in pc.value_counts(column.drop_null()).to_pylist()}


def _where(table: pa.Table, name: str, said: dict[str, str]) -> dict[str, int]:
    return {said[value]: count for value, count in _values(table[name]).items() if value in said}


def _by_turn(name: str, turn: npt.NDArray[np.int64], value: Floats) -> list[Row]:
    """Mean of each turn with the 95 % interval of a normal mean (turns are counted from 1, as people do)."""
    rows = []
    for index in range(int(turn.max()) + 1):
        at = value[(turn == index) & ~np.isnan(value)]
        if len(at):
            half = 1.96 * float(at.std(ddof=1)) / len(at) ** 0.5 if len(at) > 1 else 0.0
            mean = float(at.mean())
            rows.append(
                {
                    "set": name,
                    "turn": index + 1,
                    "mean": mean,
                    "low": mean - half,
                    "high": mean + half,
                    "turns": len(at),
                }
            )
    return rows


def _histograms(name: str, preset: str, values: dict[str, Floats]) -> list[Row]:
    """Share of the turns in each of 48 equal bins between the 0.5th and 99.5th percentile of all terms together."""
    known = {term: value[~np.isnan(value)] for term, value in values.items()}
    known = {term: value for term, value in known.items() if len(value)}
    if not known:
        return []
    low, high = np.percentile(np.concatenate(list(known.values())), [0.5, 99.5])
    edges = np.linspace(low, high if high > low else low + 1.0, _BINS + 1)
    rows = []
    for term, value in known.items():
        count, _ = np.histogram(np.clip(value, edges[0], edges[-1]), edges)
        rows += [
            {"set": name, "term": term_name(term, preset), "advantage": float(middle), "share": int(n) / len(value)}
            for middle, n in zip((edges[1:] + edges[:-1]) / 2, count, strict=True)
        ]
    return rows


def _quantiles(name: str, preset: str, turn: npt.NDArray[np.int64], value: Floats | None) -> list[Row]:
    """The middle and the middle 80 % of the advantages of each turn."""
    rows: list[Row] = []
    if value is None:
        return rows
    for index in range(int(turn.max()) + 1):
        at = value[(turn == index) & ~np.isnan(value)]
        if len(at):
            low, middle, high = (float(q) for q in np.percentile(at, [10, 50, 90]))
            rows.append({"set": name, "term": preset, "turn": index + 1, "low": low, "middle": middle, "high": high})
    return rows


def _by_level(entry: tuple[tuple[str, int | None], int]) -> tuple[str, int]:
    """Lower levels of an indicator first: as text, -2 would follow -1."""
    (indicator, level), _ = entry
    return indicator, level or 0
