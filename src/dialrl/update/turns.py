"""Rows of an advantage file as turns: ids, log-probs and advantage of one policy turn, checked one by one.

Not here: which turns are trained and how they become sequences (``sequences``), the file format itself.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dialrl.errors import InputError, NumericalError

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_ROUNDING = 1e-3  # a sampler's log-probs may be this much above 0

TURN_COLUMNS = (
    "group_id", "sample", "turn", "segment", "prompt_ids", "reply_ids", "reply_logprobs", "finish_reason", "status",
    "policy_step", "reward", "return", "advantage", "outcome", "stop_turn",
)  # fmt: skip


@dataclass(frozen=True)
class Turn:
    """One policy turn. ``prompt_ids``, ``reply_ids`` and ``logprobs`` are None where the file holds null.

    ``advantage`` None: the turn is not trained. ``cut``: the reply ended at a length limit. ``outcome``: the
    dialogue's, on its last turn. ``stopped``: a stop rule had fired before it.
    """

    dialogue: str
    turn: int
    segment: int
    prompt_ids: Ints | None
    reply_ids: Ints | None
    logprobs: Floats | None
    advantage: float | None
    cut: bool
    ok: bool
    policy_step: int | None
    outcome: float | None = None
    stopped: bool = False

    @property
    def where(self) -> str:
        return f"dialogue '{self.dialogue}', turn {self.turn}"


def read_turns(table: pa.Table) -> Iterator[Turn]:
    """The rows of ``table`` (columns of TURN_COLUMNS as far as it has them) as turns, in order."""
    groups, samples = _values(table, "group_id"), _values(table, "sample")
    turns, segments = _values(table, "turn"), _values(table, "segment")
    for name in ("prompt_ids", "reply_ids"):
        _refuse_unknown_ids(table, name)
    prompts, replies = _lists(table, "prompt_ids"), _lists(table, "reply_ids")
    logprobs, advantages = _lists(table, "reply_logprobs"), _values(table, "advantage")
    finish, status, steps = (_values(table, name) for name in ("finish_reason", "status", "policy_step"))
    outcomes, stops = _values(table, "outcome"), _values(table, "stop_turn")
    for row in range(table.num_rows):
        yield Turn(
            dialogue=f"{groups[row]}/{samples[row]}",
            turn=turns[row],
            segment=segments[row] or 0,
            prompt_ids=_ids(prompts[row]),
            reply_ids=_ids(replies[row]),
            logprobs=None if logprobs[row] is None else np.asarray(logprobs[row], dtype=np.float64),
            advantage=advantages[row],
            cut=finish[row] == "length",
            ok=status[row] in ("ok", None),
            policy_step=steps[row],
            outcome=outcomes[row],
            stopped=stops[row] is not None and turns[row] > stops[row],
        )


def _values(table: pa.Table, name: str) -> list[Any]:
    if name not in table.column_names:
        return [None] * table.num_rows
    values: list[Any] = table[name].to_pylist()
    return values


def _lists(table: pa.Table, name: str) -> list[npt.NDArray[np.generic] | None]:
    """Each row's list as a view into one flat array; None for null."""
    if name not in table.column_names:
        return [None] * table.num_rows
    array = table[name].combine_chunks()
    chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
    rows: list[npt.NDArray[np.generic] | None] = []
    for chunk in chunks:
        flat = chunk.values.to_numpy(zero_copy_only=False)
        offsets = chunk.offsets.to_numpy()
        known = chunk.is_valid().to_numpy(zero_copy_only=False)
        rows += [flat[offsets[i] : offsets[i + 1]] if known[i] else None for i in range(len(chunk))]
    return rows


def _refuse_unknown_ids(table: pa.Table, name: str) -> None:
    """Raise InputError for a list of ids with a null in it: a model reads whole sequences or none."""
    if name not in table.column_names or not pc.list_flatten(table[name]).null_count:
        return
    for row, ids in enumerate(table[name].to_pylist()):
        if ids is not None and None in ids:
            group, sample, turn = (table[key][row].as_py() for key in ("group_id", "sample", "turn"))
            raise InputError(
                f"dialogue '{group}/{sample}', turn {turn} has {name} with null at place {ids.index(None)}; expected"
                " token ids, or null for the whole list where they are not known. The file's writer is at fault."
            )


def _ids(values: npt.NDArray[np.generic] | None) -> Ints | None:
    return None if values is None else np.asarray(values, dtype=np.int64)


def check_turn(turn: Turn, *, needs_logprobs: bool) -> None:
    """Raise InputError when a good row's ids and log-probs do not belong together (field case 28).

    They are all or none and of equal length. ``needs_logprobs``: ids without log-probs are refused too.
    """
    if turn.reply_ids is None:
        if turn.logprobs is not None:
            raise InputError(f"{turn.where} has reply_logprobs but no reply_ids; expected both or none.")
        return
    if turn.logprobs is None:
        if needs_logprobs:
            raise InputError(
                f"{turn.where} has reply_ids but no reply_logprobs. Policy-gradient losses need the log-prob each token"
                " was drawn with; roll out with an engine that gives them, or use --loss sft."
            )
        return
    if len(turn.logprobs) != len(turn.reply_ids):
        raise InputError(
            f"{turn.where} has {len(turn.reply_ids)} reply_ids but {len(turn.logprobs)} reply_logprobs; expected"
            " equally many. The file's writer is at fault; roll out again."
        )


def check_trained(turn: Turn) -> None:
    """Raise for a turn that is to be trained and cannot be: no ids, or a number that is not finite (field case 6)."""
    if turn.reply_ids is None or turn.prompt_ids is None:
        raise InputError(
            f"{turn.where} has an advantage but no token ids: it comes from an engine or import that gives text only,"
            " which can be evaluated, not trained. Roll out with an engine that returns ids and log-probs."
        )
    if turn.advantage is not None and not np.isfinite(turn.advantage):
        raise NumericalError(f"{turn.where} has advantage {turn.advantage}; expected a finite number or null.")
    if turn.logprobs is not None and not np.isfinite(turn.logprobs).all():
        token = int(np.flatnonzero(~np.isfinite(turn.logprobs))[0])
        raise NumericalError(
            f"{turn.where}, token {token} has log-prob {turn.logprobs[token]} and is to be trained; expected a finite"
            " number. Roll out again, or set the turn's advantage to null."
        )
    if turn.logprobs is not None and (turn.logprobs > _ROUNDING).any():
        token = int(np.flatnonzero(turn.logprobs > _ROUNDING)[0])
        raise InputError(
            f"{turn.where}, token {token} has log-prob {turn.logprobs[token]:g}, a probability above 1; expected"
            " natural logarithms, at most 0. The file's writer is at fault (logits?); roll out again."
        )
