"""What a rollout says of itself: counts of dialogues, turns, tokens, reasons, failures, and what a reader must know."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dialrl.rollout.broken import LEFT_OUT
from dialrl.trajectory.layout import Layout


@dataclass
class RolloutTally:
    """Adds up finished blocks."""

    counts: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    flags: Counter[str] = field(default_factory=Counter)
    groups: set[str] = field(default_factory=set)
    _texts: Counter[tuple[str, tuple[int, ...]]] = field(default_factory=Counter)

    def add(self, table: pa.Table) -> None:
        """Count the rows of one block."""
        layout = Layout.of(table)
        last = table.take(layout.last_row)
        broken = pc.sum(pc.equal(last["status"], "error")).as_py() or 0
        left_out = pc.sum(pc.equal(last["error"], LEFT_OUT)).as_py() or 0
        self.counts.update(dialogues=layout.dialogues, turns=layout.rows)
        self.counts.update(failed_dialogues=broken - left_out, left_out_dialogues=left_out)
        for name in ("prompt_ids", "reply_ids"):
            self.counts[name.replace("_ids", "_tokens")] += pc.sum(pc.list_value_length(table[name])).as_py() or 0
        self.counts["cut_replies"] += pc.sum(pc.equal(table["finish_reason"], "length")).as_py() or 0
        self.counts["further_segments"] += pc.sum(last["segment"]).as_py() or 0
        self.reasons.update(value for value in last["end_reason"].to_pylist() if value)
        self.flags.update(flag for flags in table["flags"].to_pylist() for flag in flags or ())
        self.groups.update(table["group_id"].unique().to_pylist())
        self._count_duplicates(table, layout, last["status"].to_pylist())

    def _count_duplicates(self, table: pa.Table, layout: Layout, statuses: Sequence[str]) -> None:
        # Text where there are no ids.
        told = zip(table["reply_ids"].to_pylist(), table["reply"].to_pylist(), strict=True)
        replies = [text.encode() if ids is None and text else ids for ids, text in told]
        names = table["group_id"].to_pylist()
        ends = zip(layout.dialogue_start[:-1], layout.dialogue_start[1:], statuses, strict=True)
        for start, end in ((start, end) for start, end, status in ends if status == "ok"):
            whole = tuple(token for reply in replies[start:end] for token in (*(reply or ()), -1))
            self._texts[names[start], whole] += 1

    def finish(self) -> dict[str, int]:
        """All counts; duplicates are dialogues equal, token by token, to an earlier one of their group."""
        self.counts["groups"] = len(self.groups)
        self.counts["duplicate_dialogues"] = sum(count - 1 for count in self._texts.values())
        return {name: int(count) for name, count in sorted(self.counts.items())}


def tally(tables: Iterable[pa.Table]) -> RolloutTally:
    """The tally of ``tables``."""
    result = RolloutTally()
    for table in tables:
        result.add(table)
    return result


def rollout_warnings(counts: dict[str, int], settings: dict[str, Any]) -> list[str]:
    """Sentences a user should read."""
    warnings = []
    if counts["failed_dialogues"]:
        warnings.append(f"{counts['failed_dialogues']} of {counts['dialogues']} dialogues failed; see column error.")
    if counts["left_out_dialogues"]:
        warnings.append(
            f"{counts['left_out_dialogues']} good dialogues of groups in which one failed are left out of training."
        )
    if counts["duplicate_dialogues"] > 0.2 * counts["dialogues"]:
        warnings.append(
            f"{counts['duplicate_dialogues']} of {counts['dialogues']} dialogues equal another of their group token by"
            " token: the policy hardly explores (temperature, entropy) or seeds are not used."
        )
    if counts["cut_replies"] > 0.05 * counts["turns"]:
        warnings.append(f"{counts['cut_replies']} of {counts['turns']} replies were cut at the token limit.")
    if settings["samples"] == 1:
        warnings.append("samples = 1: group-relative advantages need at least two dialogues a group.")
    return warnings
