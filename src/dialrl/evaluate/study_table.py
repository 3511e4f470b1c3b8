"""The tidy table of a study of credit rules: one row a run and evaluation. ``dialrl lab`` writes it.

Its columns stand in ``COLUMNS`` and on the page docs/stages/lab.md. Not here: what follows from them
(``study_figures``).
"""

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dialrl.errors import InputError, MissingInputError

KIND = b"dialrl.lab"
VERSION = b"1"

COLUMNS: Mapping[str, tuple[pa.DataType, str]] = {
    "tier": (pa.string(), "fast (softmax policy) or confirm (language model)"),
    "phase": (pa.string(), "tuning (to choose the step size) or final"),
    "setting": (pa.string(), "the world"),
    "preset": (pa.string(), "the estimator of the advantage"),
    "step_size": (pa.float64(), "step size; learning rate of the optimiser in the tier confirm"),
    "seed": (pa.int64(), "run seed"),
    "seconds": (pa.float64(), "wall-clock time of the run"),
    "silent": (pa.float64(), "J of the silent policy in this world, exact"),
    "myopic": (pa.float64(), "J of the myopic planner, exact"),
    "optimum": (pa.float64(), "J of the best policy, exact"),
    "clairvoyant": (pa.float64(), "J of the best policy that sees whether the user is guarded, exact"),
    "iteration": (pa.int64(), "updates so far"),
    "dialogues": (pa.int64(), "training dialogues so far"),
    "turns": (pa.int64(), "training turns so far"),
    "value": (pa.float64(), "J on the held-out scenarios"),
    "share": (pa.float64(), "(J - silent) / (optimum - silent)"),
    "revealed": (pa.float64(), "share of held-out dialogues in which the detail is told"),
    "succeeded": (pa.float64(), "share of held-out dialogues that end with every need met"),
    "length": (pa.float64(), "policy turns of a held-out dialogue"),
    "entropy": (pa.float64(), "of the policy's choices (confirm: of its tokens in training), nats"),
    "gradient_norm": (pa.float64(), "mean over the updates since the row before; null at the start"),
}
SCHEMA = pa.schema([pa.field(name, kind) for name, (kind, _) in COLUMNS.items()], metadata={KIND: VERSION})


def is_study_table(path: Path) -> bool:
    """Whether ``path`` is a table of a study of credit rules."""
    try:
        return KIND in (pq.read_schema(path).metadata or {})
    except (OSError, pa.ArrowInvalid):
        return False


def read_table(path: Path) -> pa.Table:
    """The table in ``path``. Raises MissingInputError, and InputError for a file that is none or lacks columns."""
    if not path.is_file():
        raise MissingInputError(f"'{path}' does not exist; expected a table that dialrl lab study wrote.")
    if not is_study_table(path):
        raise InputError(f"'{path}' is no table of a study; expected lab.parquet of dialrl lab study.")
    table = pq.read_table(path)
    lacking = [name for name in COLUMNS if name not in table.column_names]
    if lacking:
        raise InputError(f"'{path}' lacks the columns {', '.join(lacking)}; make it again with this version.")
    return table.select(list(COLUMNS))
