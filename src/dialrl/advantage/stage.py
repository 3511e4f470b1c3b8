"""``dialrl advantage``: reads rewards and returns, adds one advantage a turn. Files in, files out.

Pools that span the input cost one more pass over the few columns they need; memory is bounded by ``batch_rows`` and the
largest group, never by the file. Not here: the arithmetic (``estimate``, ``pools``).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from dialrl.advantage.config import AdvantageConfig
from dialrl.advantage.estimate import batch_moments, compute_term, needs_whole_file
from dialrl.advantage.pools import Moments
from dialrl.advantage.resolve import Origin, resolved_terms
from dialrl.advantage.signals import SignalBatch, columns_of
from dialrl.advantage.tally import Tally, samples_asked
from dialrl.advantage.terms import Term
from dialrl.progress import SILENT, Progress
from dialrl.ragged import Floats
from dialrl.summary import StageSummary
from dialrl.trajectory.lineage import StageRecord
from dialrl.trajectory.reader import TrajectoryFile
from dialrl.trajectory.schema import KEYS
from dialrl.trajectory.transform import finished_before, transform

STAGE = "advantage"


def compute_advantages(
    inputs: Path | str | Sequence[Path | str],
    output: Path,
    config: AdvantageConfig | None = None,
    *,
    overwrite: bool = False,
    resume: bool = False,
    slim: bool = False,
    progress: Progress = SILENT,
) -> StageSummary:
    """Add advantage_<term> and advantage to ``inputs`` and write ``output``.

    Raises InputError for a file that has not been through ``returns`` or lacks a channel, UsageError for an unknown
    preset, an override that fits nothing, or a gamma that is not the preset's; OutputExistsError when ``output`` exists
    and neither ``overwrite`` nor ``resume`` is given.
    """
    config = config or AdvantageConfig()
    source = TrajectoryFile.open(inputs, stage="returns", needs=("reward", "reward_filled", "return"))
    origin = Origin.of(source.lineage, where=source.where)
    terms, notes = resolved_terms(config, origin)
    if resume and finished_before(output, stage=STAGE, config=config, source=source):
        return _already_done(output)
    work = _Work(source, terms, origin, config)
    transform(
        source,
        output,
        stage=STAGE,
        adds=work.adds,
        reads=work.reads,
        compute=work.columns,
        record=work.record,
        slim=slim,
        overwrite=overwrite,
        batch_rows=config.batch_rows,
        progress=progress,
    )
    warnings = (*notes, *work.tally.warnings(samples_asked(source.lineage.record("rollout"))))
    figures = {"estimator": config.estimator, "file_gamma": origin.gamma, **work.tally.figures()}
    return StageSummary(STAGE, output, work.tally.counts(), figures, warnings)


class _Work:
    """The stage over one input: what it reads and adds, and the columns of each table of whole groups."""

    def __init__(self, source: TrajectoryFile, terms: Sequence[Term], origin: Origin, config: AdvantageConfig) -> None:
        self.source = source
        self.terms = tuple(terms)
        self.origin = origin
        self.config = config
        self.tally = Tally(terms)
        self._over_file: dict[str, Moments] | None = None
        self._file_means: dict[str, float] = {}

    @property
    def adds(self) -> list[str]:
        return [*(f"advantage_{term.name}" for term in self.terms), "advantage"]

    @property
    def reads(self) -> list[str]:
        return _columns(self.terms, self.origin)

    def columns(self, table: pa.Table) -> Mapping[str, pa.Array]:
        """The columns of this stage for one table of whole groups."""
        if self._over_file is None:
            self._over_file = self._moments_over_file()
        batch = self._batch(table)
        results = [compute_term(t, batch, self.origin, self._over_file.get(t.name)) for t in self.terms]
        advantage_K = weighted_sum(self.terms, [result.value_K for result in results])
        self.tally.add(batch, results, advantage_K)
        names = [f"advantage_{term.name}" for term in self.terms]
        columns = {name: _numbers(result.value_K) for name, result in zip(names, results, strict=True)}
        return {**columns, "advantage": _numbers(advantage_K)}

    def record(self) -> StageRecord:
        """The lineage record: options, inputs, counts, and the terms as they were computed."""
        return StageRecord(
            STAGE,
            options=self.config.semantic_values(),
            inputs=self.source.input_files,
            counts=self.tally.counts(),
            details={
                "estimator": self.config.estimator,
                "terms": [term.model_dump(mode="json") for term in self.terms],
            },
        )

    def _moments_over_file(self) -> dict[str, Moments]:
        """Moments of the pools that span the input: one pass over the columns they need."""
        wide = [term for term in self.terms if needs_whole_file(term)]
        found = {term.name: Moments.none() for term in wide}
        for batch in self._batches(_columns(wide, self.origin)) if wide else ():
            for term in wide:
                found[term.name] = found[term.name].merged(batch_moments(term, batch, self.origin))
        return found

    def _file_mean(self, signal: str) -> float:
        """Mean of all known values of a signal: a pass of its own, only when a group knows none."""
        if signal not in self._file_means:
            totals = [batch.known_total(signal) for batch in self._batches(columns_of(signal, self.origin))]
            number = sum(amount for _, amount in totals)
            self._file_means[signal] = sum(total for total, _ in totals) / number if number else float("nan")
        return self._file_means[signal]

    def _batches(self, columns: Iterable[str]) -> Iterator[SignalBatch]:
        names = list(dict.fromkeys([*KEYS, *columns]))
        for table in self.source.groups(names, self.config.batch_rows):
            yield self._batch(table)

    def _batch(self, table: pa.Table) -> SignalBatch:
        return SignalBatch(table, self.origin, self._file_mean)


def weighted_sum(terms: Sequence[Term], values_K: Sequence[Floats]) -> Floats:
    """The advantage of each turn: the terms' values times their weights; NaN where one of them has none."""
    total_K = terms[0].weight * values_K[0]
    for term, value_K in zip(terms[1:], values_K[1:], strict=True):
        total_K += term.weight * value_K
    return total_K


def _columns(terms: Iterable[Term], origin: Origin) -> list[str]:
    signals = [columns_of(signal, origin) for term in terms for signal in term.signals]
    return list(dict.fromkeys(["return", "reward", "reward_filled", *(name for names in signals for name in names)]))


def _numbers(value_K: Floats) -> pa.Array:
    """float64, NaN as null."""
    return pa.array(np.ascontiguousarray(value_K), from_pandas=True)


def _already_done(output: Path) -> StageSummary:
    record = TrajectoryFile.open(output).lineage.record(STAGE)
    counts = {} if record is None else dict(record.counts)
    return StageSummary(STAGE, output, counts, warnings=(f"'{output}' was complete already; nothing was computed.",))
