"""What torchrun says to the processes it starts: how many there are, and which one this is. Loads no framework."""

import os
from dataclasses import dataclass

from dialrl.errors import UsageError

_NEEDED = ("RANK", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class Started:
    """``count`` processes, of which this is number ``rank``; ``local_rank`` among those of this machine, if known."""

    count: int = 1
    rank: int = 0
    local_rank: int | None = None


def started() -> Started:
    """The processes that torchrun started; one when it did not.

    Raises UsageError for an environment that torchrun cannot have made.
    """
    count = _number("WORLD_SIZE", 1, least=1)
    absent = [name for name in _NEEDED if count > 1 and not os.environ.get(name)]
    if absent:
        raise UsageError(
            f"The environment says WORLD_SIZE={count}, but not {', '.join(absent)}: torchrun did not start this"
            " process. Unset WORLD_SIZE, or start all processes with torchrun."
        )
    rank = _number("RANK", 0)
    if rank >= count > 1:
        raise UsageError(f"The environment says RANK={rank} of WORLD_SIZE={count} processes; they count from 0.")
    local = _number("LOCAL_RANK", 0) if "LOCAL_RANK" in os.environ else None
    return Started(count, rank if count > 1 else 0, local)


def _number(name: str, default: int, *, least: int = 0) -> int:
    text = os.environ.get(name, "")
    if not text:
        return default
    if not text.isdecimal() or int(text) < least:
        raise UsageError(
            f"The environment says {name}='{text}'; expected a whole number of at least {least}, as torchrun sets it."
            " Unset it, or start with torchrun."
        )
    return int(text)
