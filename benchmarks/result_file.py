"""Where a benchmark's result goes: to the terminal and, if asked for, into a file."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def show(result: Mapping[str, Any], output: Path | None) -> None:
    """Print ``result`` as JSON, and write the same text to ``output``."""
    text = json.dumps(result, indent=2)
    print(text)
    if output is not None:
        output.write_text(text + "\n", encoding="utf-8")
