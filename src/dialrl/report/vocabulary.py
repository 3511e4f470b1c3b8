"""Token ids as readable pieces, where a tokenizer lies at hand: in the run's policies. Without one ids are shown.

Reads ``tokenizer.json`` only. Not here: chat templates, encoding.
"""

from collections.abc import Iterable
from pathlib import Path

from dialrl.report.sources import Run
from dialrl.resources import resource

PLACES = ("best/model", "*/policy/model")


def pieces(runs: Iterable[Run], ids: Iterable[int]) -> dict[int, str]:
    """Text of each id by the tokenizer of the first run that has one; empty without one, or without its library."""
    file = next((found for run in runs if (found := _tokenizer_file(run)) is not None), None)
    if file is None:
        return {}
    try:
        from tokenizers import Tokenizer
    except ImportError:
        return {}
    tokenizer = Tokenizer.from_file(str(file))
    return {number: tokenizer.decode([number], skip_special_tokens=False) for number in sorted(ids)}


def _tokenizer_file(run: Run) -> Path | None:
    for pattern in PLACES:
        for found in sorted(run.path.glob(f"{pattern}/tokenizer.json")):
            return found
    if run.pipeline.get("policy") == "demo-policy":
        return resource("demo-policy/tokenizer.json")
    start = Path(str(run.pipeline.get("policy")))
    near = [start / "tokenizer.json", start / "model" / "tokenizer.json"]
    return next((file for file in near if file.is_file()), None)
