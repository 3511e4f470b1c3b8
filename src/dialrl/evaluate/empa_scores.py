"""What EPM-Q needs of a judged file, gathered table by table: indices, turns, success and scenario of each dialogue.

Not here: the formulas (``epm_q``), means and intervals (``empa``).
"""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dialrl.evaluate.config import EmpaConfig
from dialrl.evaluate.epm_q import JudgedTurns, index_table
from dialrl.ragged import Flags, Floats, Ints
from dialrl.returns.batch import TurnBatch
from dialrl.state.stop import need_met, stops
from dialrl.trajectory.layout import Layout


@dataclass
class Scores:
    """What is known of each scored dialogue, gathered table by table."""

    index_D9: list[Floats] = field(default_factory=list)
    turns_D: list[Floats] = field(default_factory=list)
    success_D: list[Flags] = field(default_factory=list)
    scenarios: list[str] = field(default_factory=list)
    dialogues: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, table: pa.Table, config: EmpaConfig) -> None:
        batch = TurnBatch(table, Layout.of(table), until_end=config.until == "end")
        scored_D = self._scorable(batch)
        if not scored_D.any():
            return
        keep_K = batch.counted & scored_D[batch.layout.dialogue_of_row]
        turns = _judged_turns(batch, keep_K, scored_D)
        first_rows = batch.layout.dialogue_start[:-1][scored_D]
        name = "scenario_id" if batch.has("scenario_id") else "group_id"
        self.scenarios += table[name].take(first_rows).to_pylist()
        groups, samples = (table[key].take(first_rows).to_pylist() for key in ("group_id", "sample"))
        self.dialogues += [f"{group}/{sample}" for group, sample in zip(groups, samples, strict=True)]
        self.index_D9.append(index_table(turns, config.epsilon))
        self.turns_D.append(np.diff(turns.dialogue_start).astype(np.float64))
        self.success_D.append(self._succeeded(batch, turns, scored_D, config))
        self.counts["turns"] += len(turns.position_KA)
        self.counts["missing_judgements"] += int((batch.equals("judge_status", "missing") & keep_K).sum())

    def _scorable(self, batch: TurnBatch) -> Flags:
        """Dialogues (D,) that did not break and have a position on every turn that counts."""
        broken_K = batch.equals("status", "error") | batch.equals("end_reason", "error")
        unknown_K = np.isnan(batch.vectors("position")).any(axis=1) | np.isnan(batch.vectors("deficit")).any(axis=1)
        start = batch.layout.dialogue_start[:-1]
        broken_D = np.logical_or.reduceat(broken_K, start)
        unjudged_D = ~broken_D & np.logical_or.reduceat(unknown_K & batch.counted, start)
        self.counts["broken_dialogues"] += int(broken_D.sum())
        self.counts["unjudged_dialogues"] += int(unjudged_D.sum())
        return np.asarray(~broken_D & ~unjudged_D & (batch.counted_turns > 0))

    def _succeeded(self, batch: TurnBatch, turns: JudgedTurns, scored_D: Flags, config: EmpaConfig) -> Flags:
        """Whether each scored dialogue ended in success, by the first of these that the file can tell.

        Its stop turn: the need was met there. Its ending, where no judge of this file has looked for a stop. Else the
        stop rules, replayed.
        """
        met_K = need_met(batch.vectors("position"), batch.vectors("deficit"), config.stop.alpha)
        stop_K = batch.numbers("stop_turn")
        at_stop_D = np.logical_or.reduceat(met_K & (batch.layout.turn == stop_K), batch.layout.dialogue_start[:-1])
        if "stop_turn" in batch.table.column_names:
            return np.asarray(at_stop_D[scored_D])
        ending_D = _texts(batch, "end_reason", batch.layout.last_row[scored_D])
        self.counts["replayed_endings"] += int((ending_D == "").sum())
        return np.where(ending_D == "", _replayed_success(turns, config), ending_D == "success")

    def all_counts(self) -> dict[str, int]:
        success = int(np.concatenate(self.success_D).sum())
        own = {"success": success, "dialogues": len(self.scenarios), "scenarios": len(set(self.scenarios))}
        names = ("turns", "missing_judgements", "broken_dialogues", "unjudged_dialogues", "replayed_endings")
        return own | {name: self.counts[name] for name in names}

    def warnings(self) -> tuple[str, ...]:
        found = []
        if self.counts["missing_judgements"]:
            found.append(
                f"{self.counts['missing_judgements']} of {self.counts['turns']} turns have no judgement: their position"
                " is carried forward and they add no levels."
            )
        for name, why in (("broken", "they broke"), ("unjudged", "they have turns without a position")):
            if self.counts[f"{name}_dialogues"]:
                found.append(f"{self.counts[f'{name}_dialogues']} dialogues were left out: {why}.")
        if self.counts["replayed_endings"]:
            found.append(
                f"{self.counts['replayed_endings']} dialogues name no ending; the stop rules were replayed over them."
            )
        if len(set(self.scenarios)) == 1:
            found.append("All dialogues are on one scenario: the intervals of its resamples have no width.")
        return tuple(found)


def _judged_turns(batch: TurnBatch, keep_K: Flags, scored_D: Flags) -> JudgedTurns:
    level_K, harm_K = _level_sums(batch.table["grades"], batch.rows)
    first_rows = batch.layout.dialogue_start[:-1][scored_D]
    return JudgedTurns(
        deficit_DA=batch.vectors("deficit")[first_rows],
        position_KA=batch.vectors("position")[keep_K],
        level_K=level_K[keep_K],
        harm_K=harm_K[keep_K],
        dialogue_start=np.append(0, np.cumsum(batch.counted_turns[scored_D])),
    )


def _level_sums(grades: pa.ChunkedArray, rows: int) -> tuple[Floats, Floats]:
    """Sum of each turn's levels and of the magnitudes of those below 0, (K,) each; 0 without grades."""
    lists = grades.combine_chunks()
    turn = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)
    level = pc.fill_null(pc.struct_field(lists.flatten(), "level"), 0).to_numpy(zero_copy_only=False).astype(np.float64)

    def by_turn(weight: Floats) -> Floats:
        return np.asarray(np.bincount(turn, weights=weight, minlength=rows), dtype=np.float64)

    return by_turn(level), by_turn(np.maximum(-level, 0.0))


def _texts(batch: TurnBatch, name: str, rows: Ints) -> NDArray[np.str_]:
    """A text column at ``rows``, null as ''."""
    if not batch.has(name):
        return np.full(len(rows), "", dtype=np.str_)
    return np.array(pc.fill_null(batch.table[name].take(rows), "").to_pylist(), dtype=np.str_)


def _replayed_success(turns: JudgedTurns, config: EmpaConfig) -> Flags:
    lengths = np.diff(turns.dialogue_start)
    deficit_KA = np.repeat(turns.deficit_DA, lengths, axis=0)
    before_KA = np.vstack([turns.position_KA[:1], turns.position_KA[:-1]])
    before_KA[turns.dialogue_start[:-1]] = turns.deficit_DA
    _, code_D = stops(turns.position_KA, deficit_KA, turns.position_KA - before_KA, turns.dialogue_start, config.stop)
    return np.asarray(code_D == 1)
