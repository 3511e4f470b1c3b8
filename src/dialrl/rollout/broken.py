"""Groups in which a dialogue failed, under ``broken_groups: drop``: kept in the file, left out of training."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from dialrl.judge.grading import ungraded
from dialrl.trajectory.rows import rows_to_table

LEFT_OUT = "left out: another dialogue of the group failed (broken_groups: drop)"


def leave_out_broken_groups(tables: Sequence[pa.Table]) -> list[pa.Table]:
    """``tables`` with every row of a group that has a failed dialogue on status ``error``, saying why.

    Grades made in the rollout go too: credit must not compare other groups with dialogues that are not trained.
    """
    broken = {group for table in tables for group in _broken(table)}
    return [_marked(table, broken) for table in tables] if broken else list(tables)


def _broken(table: pa.Table) -> list[str]:
    failed = table.filter(pc.equal(table["status"], "error"))
    return list(failed["group_id"].unique().to_pylist())


def _marked(table: pa.Table, broken: set[str]) -> pa.Table:
    rows = table.to_pylist()
    for row in rows:
        if row["group_id"] in broken and row["status"] == "ok":
            row.update(status="error", error=LEFT_OUT)
            if "judge_status" in row:
                row.update(ungraded(row["deficit"], LEFT_OUT))
    return rows_to_table(rows, table.column_names)
