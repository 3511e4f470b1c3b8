"""Where tests find the third-party data they check against, and a visible skip where it is not."""

import os
from pathlib import Path

import pytest

VARIABLE = "DIALRL_REFERENCE_DATA"


def reference(folder: str) -> Path:
    """The folder of that name in the reference data; skips the test when the data is not at hand."""
    place = os.environ.get(VARIABLE)
    if not place:
        pytest.skip(f"{VARIABLE} is not set: published {folder} data is checked only where it is at hand")
    path = Path(place) / folder
    if not path.is_dir():
        pytest.fail(f"{VARIABLE} is '{place}', which has no folder '{folder}'")
    return path
