"""Where a policy lies: a directory the user names, or one that ships with the package. Loads nothing."""

from pathlib import Path

from dialrl.errors import MissingInputError
from dialrl.resources import resource


def find_policy(policy: str | Path) -> Path:
    """A policy directory, a transformers directory, or the name of one that ships with the package (demo-policy)."""
    place = Path(policy)
    if place.exists():
        return place
    try:
        return resource(str(policy))
    except MissingInputError:
        raise MissingInputError(
            f"The policy '{policy}' is no directory. Give a policy directory (with manifest.json), a transformers"
            " directory, or demo-policy."
        ) from None
