"""``dialrl export``: chosen dialogues of a trajectory file in a format that other tools read.

``jsonl`` is every column that ``dialrl import turns`` takes back. The others are chat messages: broken dialogues are
left out and counted. Not here: the formats (``formats``, ``preferences``), what a turn is worth (``worth``).
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from dialrl.errors import InputError, UsageError
from dialrl.progress import SILENT, Progress
from dialrl.summary import StageSummary
from dialrl.trajectory.exporters.chat import ChatTurn, Row, chat_turns
from dialrl.trajectory.exporters.config import ExportConfig, Measure, Target
from dialrl.trajectory.exporters.formats import (
    VERL_SCHEMA,
    Example,
    dialogue_id,
    dpo_example,
    sft_example,
    trl_examples,
    verl_examples,
)
from dialrl.trajectory.exporters.output import Sink, json_lines, parquet
from dialrl.trajectory.exporters.preferences import Candidate, preferences
from dialrl.trajectory.exporters.worth import chosen_measure, dialogue_worth, turn_worth
from dialrl.trajectory.importers.turns import ACCEPTED
from dialrl.trajectory.reader import TrajectoryFile
from dialrl.trajectory.rows import table_to_dialogues
from dialrl.trajectory.writer import refuse_existing

Dialogues = list[list[Row]]
_CHAT_READS = (
    "group_id", "sample", "turn", "scenario_id", "environment", "messages", "reply", "status", "end_reason",
    "stop_turn", "judge_status", "deficit", "position", "reward", "return", "advantage",
)  # fmt: skip


def export(
    inputs: Path | str | Sequence[Path | str],
    output: Path,
    to: Target,
    config: ExportConfig | None = None,
    *,
    overwrite: bool = False,
    progress: Progress = SILENT,
) -> StageSummary:
    """Write ``inputs`` to ``output`` in the format ``to``.

    Raises OutputExistsError, InputError where nothing is left to write, UsageError for a ranking the file cannot give.
    """
    config = config or ExportConfig()
    refuse_existing(output, overwrite=overwrite, resumable=False)
    if to == "verl" and output.suffix != ".parquet":
        raise UsageError(
            f"verl tells formats by the file's name: expected an output that ends in .parquet, got '{output}'."
        )
    source = TrajectoryFile.open(inputs, needs=() if to == "jsonl" else ("messages", "reply"))
    work = _Export(source, to, config)
    progress.start(f"export {to}", source.num_rows, "turns")
    sink: AbstractContextManager[Sink] = parquet(output, VERL_SCHEMA) if to == "verl" else json_lines(output)
    with sink as opened:
        for table in source.groups(work.columns, config.batch_rows):
            for group in _groups(table_to_dialogues(table)):
                for example in work.examples(work.chosen(group)):
                    opened.add(example)
            progress.advance(table.num_rows)
        work.refuse_nothing(output)
    return work.summary(output)


def _groups(dialogues: Iterator[list[Row]]) -> Iterator[Dialogues]:
    held: Dialogues = []
    for rows in dialogues:
        if held and held[0][0]["group_id"] != rows[0]["group_id"]:
            yield held
            held = []
        held.append(rows)
    if held:
        yield held


class _Export:
    """One export: what is chosen, what it becomes, and what was left out."""

    def __init__(self, source: TrajectoryFile, to: Target, config: ExportConfig) -> None:
        self.source, self.to, self.config = source, to, config
        self.counts: Counter[str] = Counter()
        wanted = ACCEPTED if to == "jsonl" else _CHAT_READS
        ranked = to == "dpo" or config.best is not None
        self.measure: Measure | None = chosen_measure(config.by, source.names, where=source.where) if ranked else None
        needed = set(wanted) | (set(_CHAT_READS) if ranked else set()) | {"status", "end_reason"}
        self.columns = [name for name in source.names if name in needed]
        self.left_out = [name for name in source.names if name not in ACCEPTED] if to == "jsonl" else []
        self._found: set[str] = set()

    @property
    def until_end(self) -> bool:
        return self.config.until == "end"

    def chosen(self, group: Dialogues) -> Dialogues:
        """The dialogues of one group that go out, in order."""
        kept = [rows for rows in group if self._is_asked_for(rows)]
        self.counts["dialogues_not_chosen"] += len(group) - len(kept)
        if self.config.best is not None:
            kept = self._best(kept, self.config.best)
        return kept

    def _is_asked_for(self, rows: Sequence[Row]) -> bool:
        names = {rows[0]["group_id"], dialogue_id(rows[0])}
        asked = not self.config.dialogues or not names.isdisjoint(self.config.dialogues)
        self._found |= names & set(self.config.dialogues)
        return asked and (not self.config.end_reasons or rows[-1].get("end_reason") in self.config.end_reasons)

    def _best(self, kept: Dialogues, number: int) -> Dialogues:
        """The best ``number``; a dialogue with a missing grade has no worth and is not among them."""
        worth = {place: self._worth(rows) for place, rows in enumerate(kept)}
        known = {place: value for place, value in worth.items() if value is not None}
        self.counts["dialogues_without_worth"] += len(kept) - len(known)
        best = sorted(sorted(known, key=lambda place: -known[place])[:number])
        self.counts["dialogues_not_chosen"] += len(known) - len(best)
        return [kept[place] for place in best]

    def _worth(self, rows: Sequence[Row]) -> float | None:
        return None if self.measure is None else dialogue_worth(rows, self.measure, until_end=self.until_end)

    def examples(self, group: Dialogues) -> Iterator[Example]:
        """What the dialogues of one group become."""
        made = self._lines(group) if self.to == "jsonl" else self._chat(group)
        for example in made:
            self.counts["examples"] += 1
            yield example

    def _lines(self, group: Dialogues) -> Iterator[Example]:
        for rows in group:
            self._count(rows)
            yield from ({name: value for name, value in row.items() if name in ACCEPTED} for row in rows)

    def _chat(self, group: Dialogues) -> Iterator[Example]:
        dialogues = [(rows, turns) for rows in group if (turns := self._turns(rows))]
        if self.to == "dpo":
            candidates = [one for rows, turns in dialogues for one in self._candidates(rows, turns)]
            pairs = preferences(candidates, pairs=self.config.pairs, min_gap=self.config.min_gap)
            yield from map(dpo_example, pairs)
        elif self.to == "verl":
            yield from verl_examples([turns for _, turns in dialogues], self.config.split, self.counts["examples"])
        else:
            for _, turns in dialogues:
                yield from [sft_example(turns)] if self.to == "sft" else trl_examples(turns)

    def _turns(self, rows: Sequence[Row]) -> list[ChatTurn]:
        """The turns of a dialogue that did not break."""
        if rows[-1].get("status") == "error" or rows[-1].get("end_reason") == "error":
            self.counts["broken_dialogues"] += 1
            return []
        turns = chat_turns(rows, until_end=self.until_end)
        self._count([turn.row for turn in turns])
        return turns

    def _count(self, rows: Sequence[Row]) -> None:
        self.counts["dialogues"] += bool(rows)
        self.counts["turns"] += len(rows)

    def _candidates(self, rows: Sequence[Row], turns: Sequence[ChatTurn]) -> Iterator[Candidate]:
        if self.measure is None:
            return
        worth = turn_worth(rows, self.measure, until_end=self.until_end)
        for turn, value in zip(turns, worth, strict=False):
            self.counts["turns_without_grade"] += value is None
            if value is not None:
                yield Candidate(turn, value)

    def refuse_nothing(self, output: Path) -> None:
        absent = [name for name in self.config.dialogues if name not in self._found]
        if absent:
            raise InputError(f"{self.source.where} has no dialogue or group '{absent[0]}'.")
        if not self.counts["examples"]:
            why = ", ".join(f"{number} {name.replace('_', ' ')}" for name, number in self.counts.items() if number)
            raise InputError(
                f"Nothing of {self.source.where} is left to export to '{output}' ({why or 'no dialogue'})."
            )

    def summary(self, output: Path) -> StageSummary:
        names = ("examples", "dialogues", "turns", "dialogues_not_chosen", "broken_dialogues")
        ranked = ("dialogues_without_worth", "turns_without_grade")
        counts = {name: self.counts[name] for name in (*names, *(ranked if self.measure else ()))}
        figures = {
            "format": self.to,
            **({"ranked_by": self.measure} if self.measure else {}),
            **({"columns_left_out": self.left_out} if self.to == "jsonl" else {}),
        }
        return StageSummary("export", output, counts, figures)
