"""A small support card for tests, as plain values. Not a test module."""

from typing import Any


def card(name: str = "ada", **changes: Any) -> dict[str, Any]:
    """One card; ``changes`` replace top-level fields."""
    values: dict[str, Any] = {
        "id": name,
        "language": "en",
        "split": "train",
        "theme": "a move",
        "person": {
            "name": "Ada", "age": 41, "gender": "woman", "occupation": "bus driver", "background": "from a port town",
            "outward": "brisk and joking", "inward": "afraid of being a burden to everyone around her these days",
        },
        "threshold": "mid",
        "topic": "whether to move in with her sister",
        "hopes": "that someone sees what it costs her",
        "priorities": {"C": 2, "A": 3, "P": 1},
        "deficit": {f"{axis}.{number}": number - 1 for axis in "CAP" for number in (1, 2, 3)},
        "thread": "she has always been the one who leaves last",
        "memories": {"childhood": "MEMORY-CHILDHOOD the locked gate", "current": "MEMORY-CURRENT a full suitcase"},
        "trigger": "her sister sent the key in an envelope",
        "stages": {
            "recall": "STAGE-RECALL the key", "reflection": "STAGE-REFLECTION the two beds",
            "self_examination": "STAGE-SELF why she stays", "outburst": "STAGE-OUTBURST nobody asked her",
        },
        "outcome": "she decides for herself",
        "interlude": "she laughs it off",
        "opening": "My sister sent me a key today.",
        "strategy": "STRATEGY answer sideways twice before you admit anything that matters to you",
    }  # fmt: skip
    return {**values, **changes}
