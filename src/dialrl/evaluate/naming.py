"""Short names for the files of a comparison. Not here: the comparison."""

from collections.abc import Sequence
from pathlib import Path

from dialrl.errors import UsageError


def short_names(paths: Sequence[Path]) -> dict[str, Path]:
    """Paths by their stems, or as they were given where stems repeat. Raises UsageError for one given twice.

    Example: a/judge.parquet, b/judge.parquet, c.parquet -> "a/judge.parquet", "b/judge.parquet", "c".
    """
    stems = [path.stem for path in paths]
    names = [path.stem if stems.count(path.stem) == 1 else str(path) for path in paths]
    if len(set(names)) < len(names):
        raise UsageError(f"A file was given twice: {', '.join(map(str, paths))}.")
    return dict(zip(names, paths, strict=True))
