"""Writes the documentation page of the trajectory file's columns from the schema table.

    python -m dialrl.trajectory.schema_page > docs/trajectory-file.md

A test compares the page with this output, so it cannot go stale.
"""

import sys

from dialrl.trajectory.endings import TERMINATED_REASONS, TRUNCATED_REASONS
from dialrl.trajectory.schema import COLUMNS, SCHEMA_VERSION, STAGES, Column

_HEAD = f"""# The trajectory file

Schema version {SCHEMA_VERSION}. Parquet with zstd, **one row per policy turn**, sorted by (`group_id`, `sample`,
`turn`). A dialogue never crosses a row group, a group never crosses a shard. A stage copies what it reads and adds its
columns, so each file is whole in itself; with `--slim` it writes the keys and its own columns, and reading joins them
with the file they complete (`dialrl inspect FILE --materialize -o WHOLE` makes one whole file of them).

* **null means not known.** Never 0, never NaN, never a sentinel. A failed dialogue or judgement is a row with a status.
* **Ids are the truth.** `reply` is the decoding of `reply_ids`; broken bytes are U+FFFD, and the row is flagged.
* One metadata key, `dialrl`, holds the schema version and the lineage: options, input digests, versions, seeds, counts
  of every stage: only what the inputs determine, so equal inputs give equal bytes. Times and cost stand in
  `FILE.run.json`.

`dialrl inspect FILE` shows what is in a file, `dialrl inspect --schema` prints this table in a terminal.
"""

_FAMILIES = """## Families of columns

| column | type | stage | meaning |
|---|---|---|---|
| `reward_<channel>` | double | returns | value of one reward channel, null where not applicable or missing |
| `reward_<channel>_status` | string | returns | `known`, `not_applicable` or `missing` |
| `advantage_<term>` | double | advantage | one term of the advantage, before its weight |
"""


def page() -> str:
    """The page as Markdown."""
    parts = [_HEAD]
    for stage in STAGES:
        for rows in ("every", "last"):
            columns = [c for c in COLUMNS.values() if c.stage == stage and c.rows == rows]
            if columns:
                parts.append(_section(stage, rows, columns))
    return "\n".join([*parts, _FAMILIES, _reasons()])


def _section(stage: str, rows: str, columns: list[Column]) -> str:
    title = f"## {stage}" + ("" if rows == "every" else ": on a dialogue's last row")
    lines = [f"| `{column.name}` | {_kind(column)} | {column.description} |" for column in columns]
    return "\n".join([title, "", "| column | type | meaning |", "|---|---|---|", *lines, ""])


def _kind(column: Column) -> str:
    return str(column.type).replace("element: ", "").replace("item: ", "").replace("|", "\\|")


def _reasons() -> str:
    return (
        "## End reasons\n\n"
        f"Terminated: {', '.join(f'`{reason}`' for reason in TERMINATED_REASONS)}. "
        f"Truncated: {', '.join(f'`{reason}`' for reason in TRUNCATED_REASONS)}. Neither: `error`.\n"
    )


if __name__ == "__main__":
    sys.stdout.write(page())
