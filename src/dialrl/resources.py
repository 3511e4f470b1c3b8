"""Finds files that ship with the package: in an installed wheel or in a checkout.

In a checkout they lie in the top-level ``data/`` and ``pipelines/``; in a wheel in ``dialrl/_data`` and
``dialrl/_pipelines`` (the build maps them).
"""

from pathlib import Path

from dialrl.errors import MissingInputError

_PACKAGE = Path(__file__).resolve().parent


def resource(name: str, *, kind: str = "data") -> Path:
    """Path of the shipped file or folder ``name`` of ``kind`` ("data" or "pipelines").

    Raises MissingInputError naming both places when it is in neither.
    """
    candidates = (_PACKAGE / f"_{kind}" / name, _PACKAGE.parents[1] / kind / name)
    for candidate in candidates:
        if candidate.exists():
            return candidate
    raise MissingInputError(
        f"The shipped file '{name}' was not found in {candidates[0].parent} (installed) nor {candidates[1].parent}"
        " (checkout). Reinstall dialrl, or run from a checkout that has it."
    )
