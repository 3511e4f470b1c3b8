"""Where a policy lies: a directory the user names, one that ships with the package, or a hub name. Loads nothing."""

from pathlib import Path

from dialrl.errors import MissingInputError
from dialrl.resources import resource


def find_policy(policy: str | Path) -> str | Path:
    """A directory (of a policy, or saved by transformers), a shipped one (demo-policy), or a hub name as it stands.

    Raises MissingInputError for anything else.
    """
    place = Path(policy)
    if place.exists():
        return place
    try:
        return resource(str(policy))
    except MissingInputError:
        if is_hub_name(policy):
            return str(policy)
        raise MissingInputError(
            f"The policy '{policy}' is no directory. Give a policy directory (with manifest.json), a transformers"
            " directory, a hub name (owner/model), or demo-policy."
        ) from None


def is_hub_name(policy: str | Path) -> bool:
    """Whether ``policy`` has the form owner/model."""
    parts = policy.split("/") if isinstance(policy, str) else []
    return len(parts) == 2 and all(parts) and not parts[0].startswith((".", "~"))
