"""Groups in which a dialogue failed, under ``broken_groups: drop``: kept in the file, left out of training."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

LEFT_OUT = "left out: another dialogue of the group failed (broken_groups: drop)"


def leave_out_broken_groups(tables: Sequence[pa.Table]) -> list[pa.Table]:
    """``tables`` with every row of a group that has a failed dialogue on status ``error``, saying why."""
    broken = pa.array(sorted({group for table in tables for group in _broken(table)}), pa.string())
    return [_marked(table, broken) for table in tables] if len(broken) else list(tables)


def _broken(table: pa.Table) -> list[str]:
    failed = table.filter(pc.equal(table["status"], "error"))
    return list(failed["group_id"].unique().to_pylist())


def _marked(table: pa.Table, broken: pa.Array) -> pa.Table:
    healthy = pc.and_(pc.is_in(table["group_id"], broken), pc.equal(table["status"], "ok"))
    status = pc.if_else(healthy, "error", table["status"])
    error = pc.if_else(healthy, LEFT_OUT, table["error"])
    for name, column in (("status", status), ("error", error)):
        table = table.set_column(table.schema.get_field_index(name), table.schema.field(name), column)
    return table
