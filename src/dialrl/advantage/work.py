"""The stage ``advantage`` over one input, table by table: what it reads, what it adds, what it counts.

Files are not here (``stage``): tables of whole groups come from a function, so that dialogues in memory go the same way
(``add_advantages``). Pools that span the input cost one more pass over the few columns they need.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from dialrl.advantage.anchors import columns_of_anchor, refuse_absent_anchor
from dialrl.advantage.config import AdvantageConfig
from dialrl.advantage.estimate import batch_moments, compute_term, needs_whole_file
from dialrl.advantage.pools import Moments
from dialrl.advantage.resolve import Origin, resolved_terms
from dialrl.advantage.signals import SignalBatch, columns_of
from dialrl.advantage.tally import Tally
from dialrl.advantage.terms import Term
from dialrl.ragged import Floats
from dialrl.trajectory.layout import refuse_not_finite
from dialrl.trajectory.lineage import InputFile, StageRecord
from dialrl.trajectory.schema import KEYS

STAGE = "advantage"
Tables = Callable[[Sequence[str]], Iterator[pa.Table]]


def add_advantages(table: pa.Table, origin: Origin, config: AdvantageConfig | None = None) -> pa.Table:
    """``table`` of whole groups with the columns of ``returns``, advantages added: ``dialrl advantage`` without files.

    ``origin`` says how its returns were made (a file has that in its lineage).
    """
    config = config or AdvantageConfig()
    terms, _ = resolved_terms(config, origin)
    refuse_absent_anchor(terms, table.column_names, where="The table")
    work = AdvantageWork(terms, origin, config, lambda names: iter([table.select(names)]))
    made = work.columns(table.select([*KEYS, *work.reads]))
    for name in work.adds:
        if name in table.column_names:
            table = table.drop_columns([name])
        table = table.append_column(name, made[name])
    return table


class AdvantageWork:
    """The stage over one input; ``tables`` streams it, a given set of columns at a time."""

    def __init__(self, terms: Sequence[Term], origin: Origin, config: AdvantageConfig, tables: Tables) -> None:
        self.terms = tuple(terms)
        self.origin = origin
        self.config = config
        self._tables = tables
        self.tally = Tally(terms)
        self._over_file: dict[str, Moments] | None = None
        self._file_means: dict[str, float] = {}

    @property
    def adds(self) -> list[str]:
        return [*(f"advantage_{term.name}" for term in self.terms), "advantage"]

    @property
    def reads(self) -> list[str]:
        return list(dict.fromkeys([*_columns(self.terms, self.origin), "return"]))  # "return" for the tally

    def columns(self, table: pa.Table) -> Mapping[str, pa.Array]:
        """The columns of this stage for one table of whole groups."""
        if self._over_file is None:
            self._over_file = self._moments_over_file()
        refuse_not_finite(table, [name for name in table.column_names if name not in KEYS], where="The input")
        batch = self._batch(table)
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows is refused below, with its place
            results = [compute_term(t, batch, self.origin, self._over_file.get(t.name)) for t in self.terms]
            advantage_K = weighted_sum(self.terms, [result.value_K for result in results])
        names = [f"advantage_{term.name}" for term in self.terms]
        columns = {name: _numbers(result.value_K) for name, result in zip(names, results, strict=True)}
        columns["advantage"] = _numbers(advantage_K)
        keyed = pa.table({**{key: table[key] for key in KEYS}, **columns})
        refuse_not_finite(keyed, list(columns), where="The arithmetic of advantages")
        with np.errstate(over="ignore", invalid="ignore"):  # figures for the summary only
            self.tally.add(batch, results, advantage_K)
        return columns

    def record(self, inputs: Sequence[InputFile] = ()) -> StageRecord:
        """The lineage record: options, inputs, counts, and the terms as they were computed."""
        return StageRecord(
            STAGE,
            options=self.config.semantic_values(),
            inputs=inputs,
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
        for table in self._tables(list(dict.fromkeys([*KEYS, *columns]))):
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
    """The columns that ``terms`` are made of, beside the keys."""
    terms = tuple(terms)
    names = [name for term in terms for signal in term.signals for name in columns_of(signal, origin)]
    returns = any(term.has_return and not term.normalises_first for term in terms)
    states = [name for term in terms if term.anchor for name in columns_of_anchor(term.anchor)]
    return list(dict.fromkeys([*names, *states, *(["return"] if returns else [])]))


def _numbers(value_K: Floats) -> pa.Array:
    """float64, NaN as null."""
    return pa.array(np.ascontiguousarray(value_K), from_pandas=True)
