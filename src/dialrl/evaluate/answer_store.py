"""What a model answered to a benchmark: where it is kept until the results are whole, and read again from them.

``-o FILE`` names a results file; beside it a hidden folder holds the answers of an unfinished evaluation. ``--resume``
goes on with it, or, where the results are whole, asks again for what failed. Not here: asking, scores.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dialrl.config import StageConfig, differing_keys
from dialrl.errors import FailureThresholdError, InputError, UsageError
from dialrl.evaluate.item_results import input_digests, read_item_results, read_origin
from dialrl.summary import StageSummary
from dialrl.trajectory.parts import Parts
from dialrl.trajectory.writer import refuse_existing

Row = Mapping[str, Any]
FAILED = "failed"  # status of an item whose calls gave no answer


class AnswerStore:
    """The place of one evaluation's answers; ``rows`` are those of whole results that are completed.

    ``origin``: what the answers come from besides ``config`` and ``inputs``: the digest of the policy, of prompts.
    """

    def __init__(
        self,
        benchmark: str,
        output: Path | None,
        config: StageConfig,
        origin: Mapping[str, str],
        inputs: Sequence[Path],
        *,
        overwrite: bool,
        resume: bool,
    ) -> None:
        self.origin = dict(origin)
        self.rows: list[dict[str, Any]] = []
        self._parts: Parts | None = None
        if output is None:
            return
        identity = {"options": config.semantic_values(), **origin, "inputs": input_digests(inputs)}
        if not resume:
            refuse_existing(output, overwrite=overwrite)
        elif output.exists() and _is_same(output, benchmark, identity, overwrite=overwrite):
            self.rows = read_item_results(output)[1].to_pylist()
        self._parts = Parts(output, identity, overwrite=overwrite, resume=resume)

    @property
    def folder(self) -> Path | None:
        """Where the journals lie; None without an output."""
        return None if self._parts is None else self._parts.folder

    def clear(self) -> None:
        """The results are written."""
        if self._parts is not None:
            self._parts.clear()


def _is_same(output: Path, benchmark: str, identity: Mapping[str, Any], *, overwrite: bool) -> bool:
    """Whether whole results are this evaluation's. Raises UsageError naming what differs, unless they may go."""
    origin = read_origin(output)
    before: dict[str, Any] = {name: origin.get(name) for name in identity} | {"benchmark": origin.get("benchmark")}
    now: dict[str, Any] = {**identity, "benchmark": benchmark}
    if before == now:
        return True
    if overwrite:
        return False
    options = differing_keys(before.pop("options") or {}, now.pop("options"))
    differences = [*options, *differing_keys(before, now)]
    raise UsageError(
        f"Cannot resume '{output}': it was made otherwise: {'; '.join(differences)}. Give the settings it was made"
        " with, score its answers anew with --answers, or use --overwrite."
    )


def stored_rows(path: Path, benchmark: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The rows of a results file that a model's answers were written to, and its origin, to score them anew.

    Raises InputError for results of another benchmark, or of answers that were stored elsewhere.
    """
    name, table = read_item_results(path)
    origin = read_origin(path)
    if name != benchmark:
        raise InputError(f"'{path}' holds results of {name}; expected answers to {benchmark}.")
    if "policy" not in origin:
        raise InputError(
            f"'{path}' holds scores of stored answers and not the answers: give the file that they were read from."
        )
    return table.to_pylist(), origin


RESUMABLE = "--resume asks for the rest again"


def check_failures(
    summary: StageSummary, failed: int, items: int, most: float, *, advice: str = RESUMABLE
) -> StageSummary:
    """``summary``, or a FailureThresholdError when more than the share ``most`` of the items got no answer."""
    if failed > most * items:
        kept = "" if summary.output is None else f" What came is kept in '{summary.output}'; {advice}."
        raise FailureThresholdError(f"{failed} of {items} items got no answer: more than --max-failed {most:g}.{kept}")
    return summary


def failure_warning(failed: int) -> Iterable[str]:
    """A sentence about items whose calls failed, if there are any."""
    if failed:
        yield f"{failed} items got no answer, because the calls failed: that says nothing about the model."
